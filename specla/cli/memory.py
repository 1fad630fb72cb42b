"""Refusing early what the machine has no memory for, rather than dying half-way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from specla.backends.base import Backend, check_positions
from specla.backends.weights import WeightSource
from specla.cli.device_words import device_words, gib
from specla.cli.machine import physical_memory
from specla.errors import CapacityError
from specla.models.load import ModelFile
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.options import TargetOptions, kv_shape, recurrent_shape

_FLOAT = 4


def check_memory(
    model: ModelFile, options: TargetOptions, backend: Backend, draft_bytes: int = 0
) -> None:
    """Raise CapacityError when a run needs more memory than there is, or longer kernels.

    On a device that has its own: more than is free for weights, caches, banks and logits. In the
    host's memory only the latter are counted, for how weights are held is the backend's business:
    it may leave them in the file. draft_bytes: weights of a draft, as its file holds them.
    """
    check_positions(options.context, backend)
    room = backend.memory()
    if room is None:
        _check_host(model.config, options, backend)
        return
    free, total = room
    weights = kept_bytes(model.weights, backend) + draft_bytes
    positions = position_bytes(model.config, options)
    per_node = node_bytes(model.config, options, backend)
    if weights + positions + per_node <= free:
        return
    device = backend.describe()
    remedy = f"lower {_larger(positions, per_node)}"
    if weights > free:
        remedy = "use a smaller model or quantisation, or another device"
    raise CapacityError(
        f"{model.path} needs {gib(weights + positions + per_node)}: {gib(weights)} of weights"
        f"{f' ({gib(draft_bytes)} of the draft)' if draft_bytes else ''} and "
        f"{gib(positions + per_node)} for a context of {options.context} with trees of "
        f"{options.max_nodes} nodes; {device.get('device')}, {device.get('name')}, has "
        f"{gib(free)} free of {gib(total)}; {remedy}"
    )


def _check_host(config: Qwen35Config, options: TargetOptions, backend: Backend) -> None:
    total = physical_memory()
    if total is None:
        return
    positions, per_node = position_bytes(config, options), node_bytes(config, options, backend)
    needed = positions + per_node
    if needed > total:
        raise CapacityError(
            f"a context of {options.context} with trees of {options.max_nodes} nodes needs "
            f"{gib(needed)} of memory beside the weights, this machine has {gib(total)}; "
            f"lower {_larger(positions, per_node)}"
        )


def _larger(positions: int, per_node: int) -> str:
    return "--ctx" if positions >= per_node else "--budget or --chunk"


def kept_bytes(weights: Any, backend: Backend) -> int:
    """Bytes of all arrays and matrices in a value of dataclasses and tuples, as the backend holds
    them; what is there twice counts once."""
    found: dict[int, int] = {}

    def visit(value: Any) -> None:
        if isinstance(value, WeightSource):
            found[id(value)] = backend.kept_bytes(value)
        elif isinstance(value, np.ndarray):
            found[id(value)] = value.nbytes
        elif isinstance(value, tuple):
            for item in value:
                visit(item)
        elif is_dataclass(value):
            for one in fields(value):
                visit(getattr(value, one.name))

    visit(weights)
    return sum(found.values())


@contextmanager
def enough_memory(backend: Backend) -> Iterator[None]:
    """A device that runs out of memory says so as the host does: MemoryError, with its name."""
    try:
        yield
    except backend.out_of_memory as error:
        device = backend.describe()
        if not device or isinstance(error, MemoryError):
            raise
        raise MemoryError(f"on {device_words(device)}") from error


def position_bytes(config: Qwen35Config, options: TargetOptions) -> int:
    """Bytes that grow with the context: KV cache, rotary table, captured features."""
    cache = kv_shape(config, options)
    rows = cache.context
    # the table is made in float64: angles, then cosines and sines
    rotary = rows * (config.rotary_dim // 2) * (3 * 8 + 2 * _FLOAT)
    features = options.slots * rows * len(options.features) * config.d_model * _FLOAT
    return cache.page_bytes * cache.pages + rotary + features


def node_bytes(config: Qwen35Config, options: TargetOptions, backend: Backend) -> int:
    """Bytes that grow with the tree: state, two factor banks, boundary states, logits."""
    shape = recurrent_shape(config, options)
    nodes = options.slots * options.max_nodes
    one_state = config.n_value_heads * config.key_dim * config.value_dim * _FLOAT
    rows = max(options.chunk, nodes)
    return (
        options.slots * shape.state_bytes
        + 2 * nodes * shape.node_bytes
        + backend.boundaries(shape) * one_state
        + nodes * config.vocab_size * _FLOAT
        + rows * (2 * config.d_ff + 4 * config.d_model + config.conv_channels) * _FLOAT
    )
