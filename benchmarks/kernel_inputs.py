"""Inputs of a kernel benchmark: arrays from a seed, plans, pools, and what a case is.

State, factor banks and KV cache belong to several sequences, visited in turn with all layers, so
that they come from memory as they do when weights pass through the caches between two layers.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from shapes import Shape

from specla.backends.base import Backend
from specla.backends.pools import KvShape, RecurrentShape
from specla.core.paging import PAGE, pages_for
from specla.core.plan import Place, StepPlan, build_plan, map_arrays
from specla.core.topology import Forest, Tree


@dataclass(frozen=True)
class Case:
    """One kernel at one number of rows.

    run: one call.  results: arrays to compare, copied to the host.  elements: outputs of a call.
    n_bytes: what must be read and written at least.
    """

    name: str
    run: Callable[[], object]
    results: Callable[[], list[np.ndarray]]
    elements: int
    n_bytes: int


class Inputs:
    """Arrays, plans and pools for a backend, a model shape and a number of rows."""

    def __init__(
        self,
        backend: Backend,
        shape: Shape,
        rows: int,
        *,
        context: int = 1024,
        sequences: int = 4,
        seed: int = 0,
    ) -> None:
        self.backend, self.shape, self.rows = backend, shape, rows
        self.context, self.sequences = context, sequences
        self.rng = np.random.default_rng([seed, rows])

    def normal(self, *shape: int, scale: float = 1.0) -> Any:
        """A backend array of normal values."""
        return self.backend.upload(self.rng.standard_normal(shape, np.float32) * np.float32(scale))

    def uniform(self, low: float, high: float, *shape: int) -> Any:
        """A backend array of uniform values."""
        return self.backend.upload(self.rng.uniform(low, high, shape).astype(np.float32))

    def plans(self, pending: int) -> list[StepPlan]:
        """For each sequence: a chain of all rows behind `context` positions."""
        shape, layers = self.shape, self.layers[0]
        tokens = [int(t) for t in self.rng.integers(0, shape.vocab_size, self.rows)]
        plans = []
        for slot in range(self.sequences):
            waiting = (pending,) * layers
            place = Place(slot, self.context, 0, waiting, waiting)
            plan = build_plan(Forest((Tree.chain(tokens),)), [place])
            plans.append(map_arrays(plan, lambda _, array: self.backend.upload(array)))
        return plans

    @property
    def layers(self) -> tuple[int, int]:
        """Recurrent and attention layers."""
        config = self.shape.config("any")
        return config.n_gdn_layers, config.n_attention_layers

    def pool(self) -> Any:
        """State of all sequences, filled."""
        s, layers = self.shape, self.layers[0]
        shape = RecurrentShape(
            self.sequences, layers, self.rows, s.n_key_heads, s.n_value_heads,
            s.gdn_head_dim, s.gdn_head_dim, s.conv_width,
        )  # fmt: skip
        pool = self.backend.recurrent_pool(shape)
        for name, scale in (("state", 0.1), ("window", 1), ("key", 0.09), ("delta", 1)):
            array = getattr(pool, name)
            pool = replace(pool, **{name: self.normal(*array.shape, scale=scale)})
        decay = self.uniform(0.8, 1.0, *pool.decay.shape)
        return replace(pool, decay=decay, inputs=self.normal(*pool.inputs.shape))

    def kv(self) -> Any:
        """A cache with `context` positions and room for the rows."""
        s, layers = self.shape, self.layers[1]
        room = self.context + self.rows
        each = pages_for(room)
        shape = KvShape(
            self.sequences, layers, each * self.sequences, s.n_kv_heads, s.head_dim, room, "f16"
        )
        kv = self.backend.kv_pool(shape)
        for cache in (kv.key, kv.value):
            size = (layers, shape.pages, PAGE, s.n_kv_heads, s.head_dim)
            self.backend.upload(self.rng.standard_normal(size, np.float32).astype("f2"), into=cache)
        table = np.arange(each * self.sequences, dtype=np.int32).reshape(self.sequences, each)
        self.backend.upload(table, into=kv.page_table)
        return kv

    def turns(self, layers: int, call: Callable[[int, int], object]) -> Callable[[], object]:
        """A call that visits (sequence, layer) one after the other, layers fastest."""
        places = itertools.cycle(itertools.product(range(self.sequences), range(layers)))
        return lambda: call(*next(places))

    def host(self, *arrays: Any) -> Callable[[], list[np.ndarray]]:
        """For `results`."""
        return lambda: [self.backend.download(array) for array in arrays]
