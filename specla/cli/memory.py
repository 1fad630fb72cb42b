"""Refusing early what the machine has no memory for, rather than dying half-way."""

from __future__ import annotations

import os

from specla.errors import CapacityError
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.options import TargetOptions, kv_shape, recurrent_shape

_FLOAT = 4


def check_memory(config: Qwen35Config, options: TargetOptions) -> None:
    """Raise CapacityError when caches, banks and logits need more than the machine has.

    Weights are not counted: how they are held is the backend's business.
    """
    total = physical_memory()
    if total is None:
        return
    positions, per_node = position_bytes(config, options), node_bytes(config, options)
    needed = positions + per_node
    if needed > total:
        option = "--ctx" if positions >= per_node else "--budget or --chunk"
        raise CapacityError(
            f"a context of {options.context} with trees of {options.max_nodes} nodes needs "
            f"{gib(needed)} of memory beside the weights, this machine has {gib(total)}; "
            f"lower {option}"
        )


def position_bytes(config: Qwen35Config, options: TargetOptions) -> int:
    """Bytes that grow with the context: KV cache, rotary table, captured features."""
    cache = kv_shape(config, options)
    rows = cache.context
    # the table is made in float64: angles, then cosines and sines
    rotary = rows * (config.rotary_dim // 2) * (3 * 8 + 2 * _FLOAT)
    features = options.slots * rows * len(options.features) * config.d_model * _FLOAT
    return cache.page_bytes * cache.pages + rotary + features


def node_bytes(config: Qwen35Config, options: TargetOptions) -> int:
    """Bytes that grow with the tree: state, two factor banks, boundary states, logits."""
    shape = recurrent_shape(config, options)
    nodes = options.slots * options.max_nodes
    one_state = config.n_value_heads * config.key_dim * config.value_dim * _FLOAT
    rows = max(options.chunk, nodes)
    return (
        options.slots * shape.state_bytes
        + 2 * nodes * shape.node_bytes
        + shape.boundaries * one_state
        + nodes * config.vocab_size * _FLOAT
        + rows * (2 * config.d_ff + 4 * config.d_model + config.conv_channels) * _FLOAT
    )


def physical_memory() -> int | None:
    """Bytes of the machine's memory, None where it can't be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def gib(count: int) -> str:
    """Bytes in GiB, for people."""
    return f"{count / 2**30:.1f} GiB"
