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

    def project(
        self,
        x: Any,
        weights: tuple[Weight, ...],
        names: tuple[str, ...],
        capacity: int | None = None,
    ) -> list[Any]:
        """Workspace.project: x W^T for several matrices."""
        return self.workspace.project(x, weights, names, capacity)


class FeedForward:
    """x += W_down (silu(W_gate n) * (W_up n)), n = norm(x)."""

    def __init__(self, backend: Backend, norm: Any, weights: FfnWeights) -> None:
        self.norm = backend.upload(norm)
        self.gate = backend.load(weights.gate)
        self.up = backend.load(weights.up)
        self.down = backend.load(weights.down)

    def forward(self, step: Step, x: Any) -> None:
        """Add to x [N, d_model] in place."""
        backend = step.backend
        normed = step.rows("normed", x.shape[-1])
        backend.rms_norm(x, self.norm, step.config.rms_eps, normed)
        gate, up = step.project(normed, (self.gate, self.up), ("ffn gate", "ffn up"))
        hidden = step.rows("ffn hidden", self.gate.source.rows)
        backend.swiglu(gate, up, hidden)
        (out,) = step.project(hidden, (self.down,), ("mixed",))
        backend.add(x, out, x)


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
        normed = step.rows("normed", x.shape[-1])
        backend.rms_norm(x, self.norm, config.rms_eps, normed)
        qkv, z, alpha, beta = step.project(
            normed, (self.qkv, self.z, self.alpha, self.beta), ("qkv", "z", "alpha", "beta")
        )
        mixed = self._mix(step, qkv, alpha, beta)
        gated = step.rows("gated", config.n_value_heads * config.value_dim)
        backend.gated_rms_norm(
            mixed,
            backend.heads(z, config.n_value_heads),
            self.out_norm,
            config.rms_eps,
            backend.heads(gated, config.n_value_heads),
        )
        (out,) = step.project(gated, (self.out,), ("mixed",))
        backend.add(x, out, x)
        self.ffn.forward(step, x)

    def _mix(self, step: Step, qkv: Any, alpha: Any, beta: Any) -> Any:
        """Convolution and recurrence: [N, value_heads, value_dim]."""
        backend, config, plan, pool = step.backend, step.config, step.plan, step.recurrent
        conv_out = step.rows("conv out", config.conv_channels)
        conv = backend.conv_verify if step.verify else backend.conv_prefill
        with step.folding("window", self.index):
            conv(qkv, self.conv, pool, self.index, plan, conv_out)
        q, k, v = self._split(step, conv_out)
        decay = step.rows("decay", config.n_value_heads)
        rate = step.rows("rate", config.n_value_heads)
        backend.gdn_gates(alpha, beta, self.a, self.dt_bias, decay, rate)
        mixed = step.rows("gdn out", config.n_value_heads, config.value_dim)
        gdn = backend.gdn_verify if step.verify else backend.gdn_prefill
        with step.folding("state", self.index):
            gdn(q, k, v, decay, rate, pool, self.index, plan, mixed)
        return mixed

    def _split(self, step: Step, conv_out: Any) -> tuple[Any, Any, Any]:
        """Columns q | k | v; q and k normalised per head, q scaled by key_dim ** -0.5."""
        backend, config = step.backend, step.config
        width = config.n_key_heads * config.key_dim
        parts = []
        for name, start, scale in (("q", 0, config.key_dim**-0.5), ("k", width, 1.0)):
            raw = backend.heads(backend.columns(conv_out, start, start + width), config.n_key_heads)
            out = step.rows(f"gdn {name}", config.n_key_heads, config.key_dim)
            backend.l2_norm(raw, config.rms_eps, scale, out)
            parts.append(out)
        v = backend.columns(conv_out, 2 * width, config.conv_channels)
        return parts[0], parts[1], backend.heads(v, config.n_value_heads)


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
        normed = step.rows("normed", x.shape[-1])
        step.backend.rms_norm(x, self.norm, step.config.rms_eps, normed)
        k, v = step.project(normed, (self.k, self.v), ("attn k", "attn v"))
        self._write(step, k, v)

    def forward(self, step: Step, x: Any) -> None:
        """Add to x [N, d_model] in place."""
        backend, config, dim = step.backend, step.config, step.config.head_dim
        normed = step.rows("normed", x.shape[-1])
        backend.rms_norm(x, self.norm, config.rms_eps, normed)
        q_and_gate, k, v = step.project(
            normed, (self.q, self.k, self.v), ("attn q", "attn k", "attn v")
        )
        both = backend.heads(q_and_gate, config.n_heads)  # per head [q | gate]
        q = self._rotated(step, backend.columns(both, 0, dim), self.q_norm, "attn rotated q")
        self._write(step, k, v)
        mixed = step.rows("attn out", config.n_heads, dim)
        backend.attention(q, step.kv, self.index, step.plan, dim**-0.5, mixed)
        gated = step.rows("attn gated", config.n_heads * dim)
        gate = backend.columns(both, dim, 2 * dim)
        backend.sigmoid_gate(mixed, gate, backend.heads(gated, config.n_heads))
        (out,) = step.project(gated, (self.out,), ("mixed",))
        backend.add(x, out, x)
        self.ffn.forward(step, x)

    def _write(self, step: Step, k: Any, v: Any) -> None:
        backend, n_heads = step.backend, step.config.n_kv_heads
        k = self._rotated(step, backend.heads(k, n_heads), self.k_norm, "attn rotated k")
        backend.kv_write(k, backend.heads(v, n_heads), step.kv, self.index, step.plan)

    def _rotated(self, step: Step, x: Any, norm: Any, name: str) -> Any:
        """RMSNorm per head, then rotary position embedding."""
        out = step.rows(name, x.shape[1], step.config.head_dim)
        step.backend.rms_norm(x, norm, step.config.rms_eps, out)
        step.backend.rotary(out, step.plan.position, step.table)
        return out
