"""Inputs of GDN verify, made on the device: vectors of a forest, state and banks of all layers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from shapes import Shape

from gpu.parts import Setting
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.pools import RecurrentPool, RecurrentShape
from specla.core.plan import Place, StepPlan, build_plan, map_arrays
from specla.core.topology import Forest

CONTEXT = 1000


@dataclass
class VerifyInputs:
    """q, k, v, decay, beta, out as in Backend.gdn_verify; the same ones for every layer.

    host_plan, plan: with ``pending`` factors of each sequence to fold.  settled: with none.
    """

    backend: Any
    forest: Forest
    pending: int
    host_plan: StepPlan
    plan: StepPlan
    settled: StepPlan
    pool: RecurrentPool
    vectors: tuple[Any, ...]
    out: Any

    @property
    def layers(self) -> int:
        """Recurrent layers."""
        return self.pool.shape.layers

    def verify(self, backend: Any, layer: int, *, settled: bool = False) -> None:
        """One call of a backend's kernel."""
        plan = self.settled if settled else self.plan
        backend.gdn_verify(*self.vectors, self.pool, layer, plan, self.out)

    def verify_all(self, backend: Any) -> None:
        """All layers, one after the other."""
        for layer in range(self.layers):
            self.verify(backend, layer)

    @cached_property
    def n_bytes(self) -> int:
        """What one layer must read and write at least."""
        s, rows, batch = self.pool.shape, self.plan.n_rows, self.plan.n_sequences
        key, value = s.key_heads * s.key_dim, s.value_heads * s.value_dim
        state = s.value_heads * s.key_dim * s.value_dim * (2 if self.pending else 1)
        # q, k and the bank's key; v, out and the bank's delta; decay, beta and the bank's decay
        row = 3 * key + 3 * value + 3 * s.value_heads
        factors = self.pending * (key + value + s.value_heads)
        return 4 * (batch * (state + factors) + rows * row)

    def reference(self) -> dict[str, np.ndarray]:
        """What NumPy makes of layer 0 as it is now: output, state and the bank that is written."""
        download, shape = self.backend.download, replace(self.pool.shape, layers=1)
        arrays = {
            name: download(getattr(self.pool, name)[:, :1])
            if name in ("state", "window")
            else download(getattr(self.pool, name)[:, :, :1])
            for name in ("state", "window", "key", "delta", "decay", "inputs")
        }
        # of the reference's own: a GPU's pool keeps none
        state = (shape.value_heads, shape.key_dim, shape.value_dim)
        boundary = np.empty((shape.boundaries, *state), np.float32)
        pool = RecurrentPool(shape, boundary=boundary, **arrays)
        vectors = [download(vector) for vector in self.vectors]
        out = np.empty(tuple(self.out.shape), np.float32)
        NumpyBackend().gdn_verify(*vectors, pool, 0, self.host_plan, out)
        return {"out": out, "state": pool.state[:, 0], **_bank(pool)}

    def results(self) -> dict[str, np.ndarray]:
        """The same of the device's arrays, after a call for layer 0."""
        download, pool = self.backend.download, self.pool
        found = {"out": self.out, "state": pool.state[:, 0], **_bank(pool)}
        return {name: download(array) for name, array in found.items()}


def _bank(pool: RecurrentPool) -> dict[str, Any]:
    """Factors of layer 0 in bank 1, which a step writes when bank 0 is pending."""
    return {name: getattr(pool, name)[:, 1, 0] for name in ("key", "delta", "decay")}


def verify_inputs(setting: Setting, backend: Any, forest: Forest, pending: int) -> VerifyInputs:
    """Random ones, always the same for the same forest."""
    import torch

    shape, batch = setting.sizes.shape, len(forest.trees)
    nodes = max(pending, max(map(len, forest.trees)))
    random = torch.Generator(setting.device).manual_seed(nodes)
    pool = _pool(backend, shape, batch, nodes, random)
    plans = [_plan(forest, pool.shape.layers, count) for count in (pending, 0)]
    uploaded = [map_arrays(plan, lambda _, array: backend.upload(array)) for plan in plans]
    s, n = pool.shape, forest.rows

    def normal(*size: int, scale: float = 1.0) -> Any:
        return torch.randn(size, generator=random, device=setting.device) * scale

    def uniform(low: float, high: float) -> Any:
        drawn = torch.rand((n, s.value_heads), generator=random, device=setting.device)
        return low + (high - low) * drawn

    vectors = (
        normal(n, s.key_heads, s.key_dim, scale=1 / s.key_dim),
        normal(n, s.key_heads, s.key_dim, scale=s.key_dim**-0.5),
        normal(n, s.value_heads, s.value_dim),
        uniform(0.8, 1.0),
        uniform(0.0, 1.0),
    )
    out = backend.empty((n, s.value_heads, s.value_dim))
    return VerifyInputs(backend, forest, pending, plans[0], *uploaded, pool, vectors, out)


def _pool(backend: Any, shape: Shape, batch: int, nodes: int, random: Any) -> RecurrentPool:
    dim = shape.gdn_head_dim
    layers = shape.config("any").n_gdn_layers
    pool: RecurrentPool = backend.recurrent_pool(
        RecurrentShape(
            batch, layers, nodes, shape.n_key_heads, shape.n_value_heads, dim, dim, shape.conv_width
        )
    )
    pool.state.normal_(0, 0.1, generator=random)
    pool.key.normal_(0, dim**-0.5, generator=random)
    pool.delta.normal_(0, 1, generator=random)
    pool.decay.uniform_(0.8, 1, generator=random)
    pool.inputs.zero_()
    return pool


def _plan(forest: Forest, layers: int, pending: int) -> StepPlan:
    waiting = (pending,) * layers
    places = [Place(slot, CONTEXT, 0, waiting, waiting) for slot in range(len(forest.trees))]
    return build_plan(forest, places)
