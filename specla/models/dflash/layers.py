"""A DFlash layer on the kernel protocol: keys and values of the context, and a block through it.

Both share the layer's key and value projections; the context's come from the fused features and
pass no norm of the layer. Source: the DFlash drafters as llama.cpp and lucebox run them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from specla.backends.base import Backend, RotaryTable, Weight
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
    ) -> list[Any]:
        """Workspace.project: x W^T for several matrices."""
        return self.workspace.project(x, weights, names, capacity)

    def rotated(self, x: Any, n_heads: int, norm: Any, name: str) -> Any:
        """RMSNorm per head, then rotary position embedding: [n, n_heads, head_dim]."""
        out = self.rows(name, n_heads, self.config.head_dim)
        self.backend.rms_norm(self.backend.heads(x, n_heads), norm, self.config.rms_eps, out)
        self.backend.rotary(out, self.position, self.table)
        return out


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

        def attend(normed: Any) -> Any:
            return self._attend(step, normed, block, sight)

        def feed_forward(normed: Any) -> Any:
            return self._feed_forward(step, normed)

        self._mix(step, x, self.attn_norm, self.attn_conv, attend)
        self._mix(step, x, self.ffn_norm, self.ffn_conv, feed_forward)

    def _mix(
        self,
        step: DraftStep,
        x: Any,
        norm: Any,
        conv: BlockConv | None,
        mixer: Callable[[Any], Any],
    ) -> None:
        """x += conv(mixer(conv(norm(x)))), without convolutions in a plain DFlash."""
        normed = step.rows("normed", step.config.d_model)
        step.backend.rms_norm(x, norm, step.config.rms_eps, normed)
        if conv is None:
            out = mixer(normed)
        else:
            dynamic = conv.coefficients(step, normed)
            out = mixer(conv.apply(step, normed, dynamic, 0))
            out = conv.apply(step, out, dynamic, 1)
        step.backend.add(x, out, x)

    def _write(self, step: DraftStep, k: Any, v: Any, plan: StepPlan) -> None:
        n_heads = step.config.n_kv_heads
        rotated = step.rotated(k, n_heads, self.k_norm, "rotated k")
        values = step.backend.heads(v, n_heads)
        step.backend.kv_write(rotated, values, step.kv, self.index, plan)

    def _attend(self, step: DraftStep, normed: Any, block: StepPlan, sight: StepPlan) -> Any:
        backend, config = step.backend, step.config
        q, k, v = step.project(normed, (self.q, self.k, self.v), ("q", "k", "v"))
        self._write(step, k, v, block)
        rotated = step.rotated(q, config.n_heads, self.q_norm, "rotated q")
        mixed = step.rows("attn out", config.n_heads * config.head_dim)
        heads = backend.heads(mixed, config.n_heads)
        backend.attention(rotated, step.kv, self.index, sight, config.head_dim**-0.5, heads)
        (out,) = step.project(mixed, (self.out,), ("mixed",))
        return out

    def _feed_forward(self, step: DraftStep, normed: Any) -> Any:
        gate, up = step.project(normed, (self.gate, self.up), ("ffn gate", "ffn up"))
        hidden = step.rows("ffn hidden", step.config.d_ff)
        step.backend.swiglu(gate, up, hidden)
        (out,) = step.project(hidden, (self.down,), ("mixed",))
        return out
