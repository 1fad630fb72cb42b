"""The two kinds of Qwen3.5 layers on the kernel protocol: Gated DeltaNet and full attention.

Both are ``x += mixer(norm(x)); x += swiglu(norm(x))``. Facts of the architecture: Qwen3.5's
reference in transformers (models/qwen3_5) and the `qwen35` GGUF layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from specla.backends.base import Backend, RotaryTable, Weight
from specla.backends.compositions import Operand
from specla.backends.pools import KvPool, RecurrentPool
from specla.core.lifecycle import Ledger
from specla.core.plan import StepPlan
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.weights import AttentionWeights, FfnWeights, GdnWeights
from specla.models.workspace import Workspace


@dataclass(frozen=True)
class Step:
    """What one forward pass works on. verify: record factors instead of moving the state on.
    whole: the calls are recorded and run together (StepRunner.whole).
    """

    backend: Backend
    workspace: Workspace
    config: Qwen35Config
    recurrent: RecurrentPool
    kv: KvPool
    table: RotaryTable
    plan: StepPlan
    ledgers: tuple[Ledger, ...]
    verify: bool
    whole: bool

    def rows(self, name: str, *shape: int, capacity: int | None = None) -> Any:
        """Scratch [N, *shape]."""
        return self.workspace.rows(name, self.plan.n_rows, *shape, capacity=capacity)

    @contextmanager
    def folding(self, what: str, layer: int) -> Iterator[None]:
        """Around a kernel that folds pending factors: tells every ledger of the batch.

        A prefill has nothing pending and is guarded as a whole, and so is a step that runs as one.
        """
        with ExitStack() as stack:
            for ledger in self.ledgers if self.verify and not self.whole else ():
                fold = ledger.folding_state if what == "state" else ledger.folding_window
                stack.enter_context(fold(layer))
            yield

    def operand(self, name: str, cols: int, *weights: Weight) -> Operand:
        """Room for what the matrices take [N, cols]."""
        return self.workspace.operand(name, self.plan.n_rows, cols, weights)

    def normed(self, x: Any, norm: Any, *weights: Weight) -> Operand:
        """RMSNorm of x [N, d_model], for these matrices."""
        operand = self.operand("normed", x.shape[-1], *weights)
        self.backend.rms_norm_operand(x, norm, self.config.rms_eps, operand)
        return operand

    def products(
        self,
        x: Operand,
        weights: tuple[Weight, ...],
        names: tuple[str, ...],
        capacity: int | None = None,
    ) -> tuple[Any, ...]:
        """Workspace.products: x W^T for several matrices."""
        return self.workspace.products(x, weights, names, capacity)

    def add_product(self, x: Any, operand: Operand, weight: Weight) -> None:
        """Add operand W^T to x [N, rows] in place."""
        room = self.rows("mixed", weight.source.rows)
        self.backend.linear_add(operand, weight, room, x)


class FeedForward:
    """x += W_down (silu(W_gate n) * (W_up n)), n = norm(x)."""

    def __init__(self, backend: Backend, norm: Any, weights: FfnWeights) -> None:
        self.norm = backend.upload(norm)
        self.gate = backend.load(weights.gate)
        self.up = backend.load(weights.up)
        self.down = backend.load(weights.down)

    def forward(self, step: Step, x: Any) -> None:
        """Add to x [N, d_model] in place."""
        rows, pair = self.gate.source.rows, (self.gate, self.up)
        normed = step.normed(x, self.norm, *pair)
        hidden = step.operand("ffn hidden", rows, self.down)
        rooms = step.rows("ffn gate", rows), step.rows("ffn up", rows)
        step.backend.linear_swiglu(normed, pair, rooms, hidden)
        step.add_product(x, hidden, self.down)


class GdnLayer:
    """Gated DeltaNet mixer: conv, gated delta rule, gated norm. index: among recurrent layers."""

    def __init__(self, backend: Backend, index: int, weights: GdnWeights) -> None:
        self.index = index
        self.norm = backend.upload(weights.attn_norm)
        self.qkv = backend.load(weights.qkv)
        self.z = backend.load(weights.z)
        self.alpha = backend.load(weights.alpha)
        self.beta = backend.load(weights.beta)
        self.out = backend.load(weights.out)
        self.conv = backend.upload(weights.conv)
        self.a = backend.upload(weights.a)
        self.dt_bias = backend.upload(weights.dt_bias)
        self.out_norm = backend.upload(weights.norm)
        self.ffn = FeedForward(backend, weights.ffn_norm, weights.ffn)

    def forward(self, step: Step, x: Any) -> None:
        """Add to x [N, d_model] in place."""
        backend, config = step.backend, step.config
        weights = (self.qkv, self.z, self.alpha, self.beta)
        normed = step.normed(x, self.norm, *weights)
        qkv, z, alpha, beta = step.products(normed, weights, ("qkv", "z", "alpha", "beta"))
        mixed = self._mix(step, qkv, alpha, beta)
        gated = step.operand("gated", config.n_value_heads * config.value_dim, self.out)
        gate = backend.heads(z, config.n_value_heads)
        backend.gated_rms_norm_operand(mixed, gate, self.out_norm, config.rms_eps, gated)
        step.add_product(x, gated, self.out)
        self.ffn.forward(step, x)

    def _mix(self, step: Step, qkv: Any, alpha: Any, beta: Any) -> Any:
        """Convolution and recurrence: [N, value_heads, value_dim]."""
        backend, config, plan, pool = step.backend, step.config, step.plan, step.recurrent
        conv_out = step.rows("conv out", config.conv_channels)
        conv = backend.conv_verify if step.verify else backend.conv_prefill
        with step.folding("window", self.index):
            conv(qkv, self.conv, pool, self.index, plan, conv_out)
        q, k, v, decay, rate = self._inputs(step, conv_out, alpha, beta)
        mixed = step.rows("gdn out", config.n_value_heads, config.value_dim)
        gdn = backend.gdn_verify if step.verify else backend.gdn_prefill
        with step.folding("state", self.index):
            gdn(q, k, v, decay, rate, pool, self.index, plan, mixed)
        return mixed

    def _inputs(self, step: Step, conv_out: Any, alpha: Any, beta: Any) -> tuple[Any, ...]:
        """Columns q | k | v, q and k normalised per head, q scaled by key_dim ** -0.5; gates."""
        backend, config = step.backend, step.config
        heads, dim, width = config.n_key_heads, config.key_dim, config.n_key_heads * config.key_dim
        q, k = (
            backend.heads(backend.columns(conv_out, start, start + width), heads)
            for start in (0, width)
        )
        outs = (
            *(step.rows(f"gdn {name}", heads, dim) for name in "qk"),
            *(step.rows(name, config.n_value_heads) for name in ("decay", "rate")),
        )
        gates = (alpha, beta, self.a, self.dt_bias)
        backend.gdn_inputs(q, k, config.rms_eps, dim**-0.5, *gates, *outs)
        v = backend.heads(
            backend.columns(conv_out, 2 * width, config.conv_channels), config.n_value_heads
        )
        return (*outs[:2], v, *outs[2:])


class AttentionLayer:
    """Gated full attention with partial rotary embedding. index: among attention layers."""

    def __init__(self, backend: Backend, index: int, weights: AttentionWeights) -> None:
        self.index = index
        self.norm = backend.upload(weights.attn_norm)
        self.q = backend.load(weights.q)
        self.k = backend.load(weights.k)
        self.v = backend.load(weights.v)
        self.out = backend.load(weights.out)
        self.q_norm = backend.upload(weights.q_norm)
        self.k_norm = backend.upload(weights.k_norm)
        self.ffn = FeedForward(backend, weights.ffn_norm, weights.ffn)

    def remember(self, step: Step, x: Any) -> None:
        """Only write keys and values of x [N, d_model]: for rows whose output nobody wants."""
        weights = (self.k, self.v)
        normed = step.normed(x, self.norm, *weights)
        k, v = step.products(normed, weights, ("attn k", "attn v"))
        self._write(step, k, v)

    def forward(self, step: Step, x: Any) -> None:
        """Add to x [N, d_model] in place."""
        backend, config, dim = step.backend, step.config, step.config.head_dim
        weights = (self.q, self.k, self.v)
        normed = step.normed(x, self.norm, *weights)
        q_and_gate, k, v = step.products(normed, weights, ("attn q", "attn k", "attn v"))
        both = backend.heads(q_and_gate, config.n_heads)  # per head [q | gate]
        q = self._rotated(step, backend.columns(both, 0, dim))
        self._write(step, k, v)
        mixed = step.rows("attn out", config.n_heads, dim)
        backend.attention(q, step.kv, self.index, step.plan, dim**-0.5, mixed)
        gated = step.operand("attn gated", config.n_heads * dim, self.out)
        backend.sigmoid_gate_operand(mixed, backend.columns(both, dim, 2 * dim), gated)
        step.add_product(x, gated, self.out)
        self.ffn.forward(step, x)

    def _rotated(self, step: Step, q: Any) -> Any:
        """Queries [N, heads, head_dim], normed and rotated per head."""
        out = step.rows("attn rotated q", *q.shape[1:])
        rotation = (step.plan.position, step.table)
        step.backend.rms_norm_rotary(q, self.q_norm, step.config.rms_eps, *rotation, out)
        return out

    def _write(self, step: Step, k: Any, v: Any) -> None:
        """Keys, normed and rotated per head, and values to the cache."""
        backend, config = step.backend, step.config
        k, v = backend.heads(k, config.n_kv_heads), backend.heads(v, config.n_kv_heads)
        room = step.rows("attn rotated k", config.n_kv_heads, config.head_dim)
        norm = (self.k_norm, config.rms_eps, step.table)
        backend.kv_append(k, *norm, v, step.kv, self.index, step.plan, room)
