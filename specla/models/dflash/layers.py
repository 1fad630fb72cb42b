"""A DFlash layer on the kernel protocol: keys and values of the context, and a block through it.

Both share the layer's key and value projections; the context's come from the fused features and
pass no norm of the layer. Source: the DFlash drafters as llama.cpp and lucebox run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specla.backends.base import Backend, RotaryTable, Weight
from specla.backends.compositions import Operand
from specla.backends.pools import KvPool
from specla.core.plan import StepPlan
from specla.models.dflash.config import DraftConfig
from specla.models.dflash.weights import ConvWeights, DraftLayerWeights
from specla.models.workspace import Workspace


@dataclass(frozen=True)
class DraftStep:
    """What one pass works on, ``n`` rows. position: int32 [n] on the device, for rotation."""

    backend: Backend
    workspace: Workspace
    config: DraftConfig
    table: RotaryTable
    kv: KvPool
    n: int
    position: Any

    def rows(
        self, name: str, *shape: int, n: int | None = None, capacity: int | None = None
    ) -> Any:
        """Scratch [n, *shape]."""
        return self.workspace.rows(name, self.n if n is None else n, *shape, capacity=capacity)

    def project(
        self,
        x: Any,
        weights: tuple[Weight, ...],
        names: tuple[str, ...],
        capacity: int | None = None,
    ) -> tuple[Any, ...]:
        """Workspace.project: x W^T for several matrices."""
        return self.workspace.project(x, weights, names, capacity)

    def quantised(self, x: Any, *weights: Weight) -> Operand:
        """Workspace.quantised: x as these matrices take it."""
        return self.workspace.quantised(x, weights)

    def operand(self, name: str, cols: int, *weights: Weight) -> Operand:
        """Room for what the matrices take [n, cols]."""
        return self.workspace.operand(name, self.n, cols, weights)

    def products(
        self, x: Operand, weights: tuple[Weight, ...], names: tuple[str, ...]
    ) -> tuple[Any, ...]:
        """Workspace.products: x W^T for several matrices."""
        return self.workspace.products(x, weights, names)


class BlockConv:
    """DFlash2's convolution around a mixer: the same coefficients before it (side 0) and after."""

    def __init__(self, backend: Backend, weights: ConvWeights) -> None:
        self.base = backend.upload(weights.base)
        self.projection = backend.load(weights.projection)

    def coefficients(self, step: DraftStep, normed: Any) -> Any:
        """[n, 2 * taps * groups] of the mixer's input [n, d_model]."""
        (dynamic,) = step.project(normed, (self.projection,), ("dynamic",))
        return dynamic

    def apply(self, step: DraftStep, x: Any, dynamic: Any, side: int) -> Any:
        """[n, d_model], valid until the next call."""
        out = step.rows("convolved", step.config.d_model)
        step.backend.block_conv(x, dynamic, self.base, side, out)
        return out


class DraftLayer:
    """One layer. index: among the drafter's."""

    def __init__(self, backend: Backend, index: int, weights: DraftLayerWeights) -> None:
        self.index = index
        self.attn_norm = backend.upload(weights.attn_norm)
        self.ffn_norm = backend.upload(weights.ffn_norm)
        self.q = backend.load(weights.q)
        self.k = backend.load(weights.k)
        self.v = backend.load(weights.v)
        self.out = backend.load(weights.out)
        self.q_norm = backend.upload(weights.q_norm)
        self.k_norm = backend.upload(weights.k_norm)
        self.gate = backend.load(weights.ffn.gate)
        self.up = backend.load(weights.ffn.up)
        self.down = backend.load(weights.ffn.down)
        conv = weights.attn_conv
        self.attn_conv = None if conv is None else BlockConv(backend, conv)
        conv = weights.ffn_conv
        self.ffn_conv = None if conv is None else BlockConv(backend, conv)

    def append(self, step: DraftStep, fused: Any, plan: StepPlan) -> None:
        """Keys and values of fused features [n, d_model] to the cache."""
        k, v = step.project(fused, (self.k, self.v), ("k", "v"))
        self._write(step, k, v, plan)

    def forward(self, step: DraftStep, x: Any, block: StepPlan, sight: StepPlan) -> None:
        """Add to x [n, d_model], the block, in place."""

        def attend(normed: Operand) -> Operand:
            return self._attend(step, normed, block, sight)

        def feed_forward(normed: Operand) -> Operand:
            return self._feed_forward(step, normed)

        heads, pair = (self.q, self.k, self.v), (self.gate, self.up)
        self._mix(step, x, self.attn_norm, self.attn_conv, heads, attend, self.out)
        self._mix(step, x, self.ffn_norm, self.ffn_conv, pair, feed_forward, self.down)

    def _mix(
        self,
        step: DraftStep,
        x: Any,
        norm: Any,
        conv: BlockConv | None,
        first: tuple[Weight, ...],
        mixer: Callable[[Operand], Operand],
        last: Weight,
    ) -> None:
        """x += conv(W_last mixer(conv(norm(x)))), without convolutions in a plain DFlash.

        first: the matrices that the mixer begins with.
        """
        backend, width, eps = step.backend, step.config.d_model, step.config.rms_eps
        if conv is None:
            operand = step.operand("normed", width, *first)
            backend.rms_norm_operand(x, norm, eps, operand)
            backend.linear_add(mixer(operand), last, step.rows("mixed", width), x)
            return
        normed = step.rows("normed", width)
        backend.rms_norm(x, norm, eps, normed)
        dynamic = conv.coefficients(step, normed)
        operand = step.quantised(conv.apply(step, normed, dynamic, 0), *first)
        (out,) = step.products(mixer(operand), (last,), ("mixed",))
        backend.add(x, conv.apply(step, out, dynamic, 1), x)

    def _write(self, step: DraftStep, k: Any, v: Any, plan: StepPlan) -> None:
        backend, config = step.backend, step.config
        k, v = backend.heads(k, config.n_kv_heads), backend.heads(v, config.n_kv_heads)
        room = step.rows("rotated k", config.n_kv_heads, config.head_dim)
        norm = (self.k_norm, config.rms_eps, step.table)
        backend.kv_append(k, *norm, v, step.kv, self.index, plan, room)

    def _attend(
        self, step: DraftStep, normed: Operand, block: StepPlan, sight: StepPlan
    ) -> Operand:
        backend, config = step.backend, step.config
        q, k, v = step.products(normed, (self.q, self.k, self.v), ("q", "k", "v"))
        self._write(step, k, v, block)
        rotated = step.rows("rotated q", config.n_heads, config.head_dim)
        norm = (self.q_norm, config.rms_eps, step.position, step.table)
        backend.rms_norm_rotary(backend.heads(q, config.n_heads), *norm, rotated)
        mixed = step.rows("attn out", config.n_heads * config.head_dim)
        heads = backend.heads(mixed, config.n_heads)
        backend.attention(rotated, step.kv, self.index, sight, config.head_dim**-0.5, heads)
        return step.quantised(mixed, self.out)

    def _feed_forward(self, step: DraftStep, normed: Operand) -> Operand:
        hidden = step.operand("ffn hidden", step.config.d_ff, self.down)
        rooms = step.rows("ffn gate", step.config.d_ff), step.rows("ffn up", step.config.d_ff)
        step.backend.linear_swiglu(normed, (self.gate, self.up), rooms, hidden)
        return hidden
