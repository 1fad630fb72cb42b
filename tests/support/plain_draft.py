"""A drafter computed anew in float64 NumPy, from the published formulas: no cache, no kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from support.drafters import DraftSpec

Array = np.ndarray


class PlainDraft:
    """The block after a context, for a spec's tensors as float64."""

    def __init__(self, spec: DraftSpec, tensors: dict[str, Array], target: Any) -> None:
        self.spec = spec
        self.t = {name: np.asarray(values, np.float64) for name, values in tensors.items()}
        parts = target.parts
        shape = (target.config.vocab_size, target.config.d_model)
        self.embedding = self.t.get("token_embd.weight")
        self.output = self.t.get("output.weight")
        if self.embedding is None:
            data = parts.embedding.source.data.view(np.float32)
            self.embedding = data.reshape(shape).astype(np.float64)
        if self.output is None and "token_embd.weight" in self.t:
            self.output = self.embedding
        if self.output is None:
            data = parts.output.source.data.view(np.float32)
            self.output = data.reshape(shape).astype(np.float64)

    def get(self, *names: str) -> Array:
        return next(self.t[f"{name}.weight"] for name in names if f"{name}.weight" in self.t)

    def logits(self, features: Array, root: int, slots: int, base: float = 1e4) -> Array:
        """float64 [slots, draft vocab] of features [n, F, d] and a root."""
        spec, n = self.spec, len(features)
        concat = np.asarray(features, np.float64).reshape(n, math.prod(features.shape[1:]))
        fused = norm(
            concat @ self.get("fc", "dflash.fc").T,
            self.get("enc.output_norm", "dflash.hidden_norm"),
        )
        tokens = [root] + [spec.mask] * (slots - 1)
        x = self.embedding[tokens]
        for i in range(spec.n_layers):
            x = self._layer(f"blk.{i}", i, fused, x, n, base)
        self.hidden = norm(x, self.t["output_norm.weight"])
        return self.hidden @ self.output.T

    def _layer(self, block: str, i: int, fused: Array, x: Array, n: int, base: float) -> Array:
        spec, slots = self.spec, len(x)

        def w(name: str) -> Array:
            return self.t[f"{block}.{name}.weight"]

        h = norm(x, w("attn_norm"))
        dynamic = self._dynamic(block, "attn", h)
        h = self._convolved(block, "attn", h, dynamic, 0)
        q = self._heads(h @ w("attn_q").T, spec.n_heads)
        both = np.concatenate([fused, h])
        k = self._heads(both @ w("attn_k").T, spec.n_kv_heads)
        v = self._heads(both @ w("attn_v").T, spec.n_kv_heads)
        at = np.arange(n + slots)
        q = self._rotate(norm(q, w("attn_q_norm")), at[n:], base)
        k = self._rotate(norm(k, w("attn_k_norm")), at, base)
        k, v = (np.repeat(a, spec.n_heads // spec.n_kv_heads, axis=1) for a in (k, v))
        scores = np.einsum("qhd,khd->hqk", q, k) / math.sqrt(spec.head_dim)
        scores = np.where(self._visible(i, n, slots), scores, -np.inf)
        p = np.exp(scores - scores.max(axis=-1, keepdims=True))
        p /= p.sum(axis=-1, keepdims=True)
        mixed = np.einsum("hqk,khd->qhd", p, v).reshape(slots, -1) @ w("attn_output").T
        x = x + self._convolved(block, "attn", mixed, dynamic, 1)
        h = norm(x, w("ffn_norm"))
        dynamic = self._dynamic(block, "ffn", h)
        h = self._convolved(block, "ffn", h, dynamic, 0)
        gate = h @ w("ffn_gate").T
        mixed = (gate / (1 + np.exp(-gate)) * (h @ w("ffn_up").T)) @ w("ffn_down").T
        return x + self._convolved(block, "ffn", mixed, dynamic, 1)

    def _dynamic(self, block: str, part: str, h: Array) -> Array | None:
        """DFlash2's coefficients [slots, 2, taps, groups]."""
        if self.spec.dflash2 is None:
            return None
        taps, group = self.spec.dflash2[:2]
        flat = h @ self.t[f"{block}.{part}_conv_proj.weight"].T
        return flat.reshape(len(h), 2, taps, self.spec.d_model // group)

    def _convolved(
        self, block: str, part: str, x: Array, dynamic: Array | None, side: int
    ) -> Array:
        if dynamic is None:
            return x
        base = self.t[f"{block}.{part}_conv_base"]
        out = np.zeros_like(x)
        for n in range(len(x)):
            for tap in range(min(dynamic.shape[2], n + 1)):
                for c in range(x.shape[1]):
                    own = dynamic[n, side, tap, c // self.spec.dflash2[1]]
                    out[n, c] += x[n - tap, c] * (own + base[side, tap, c])
        return out

    def _heads(self, x: Array, heads: int) -> Array:
        return x.reshape(len(x), heads, self.spec.head_dim)

    def _visible(self, i: int, n: int, slots: int) -> Array:
        """[slots, n + slots]: which key a slot sees."""
        spec = self.spec
        q, k = np.arange(n, n + slots)[:, None], np.arange(n + slots)[None]
        visible = np.ones((slots, n + slots), dtype=bool)
        if spec.causal:
            visible &= k <= q
        if spec.window is not None and spec.sliding[i]:
            if spec.arch == "dflash":
                visible &= q - k < spec.window
            else:
                visible &= (k >= n - spec.window) & (k <= q)
        return visible

    def _rotate(self, x: Array, position: Array, base: float) -> Array:
        dim = self.spec.head_dim
        angle, magnitude = angles(self.spec, position, dim, base)
        cos, sin = (f(angle)[:, None] * magnitude for f in (np.cos, np.sin))
        one, two = x[..., : dim // 2], x[..., dim // 2 :]
        return np.concatenate([one * cos - two * sin, two * cos + one * sin], axis=-1)


def angles(spec: DraftSpec, position: Array, dim: int, base: float) -> tuple[Array, float]:
    """Angles [n, dim / 2] and what cosine and sine are multiplied by; YaRN pair by pair."""
    keys = {key: value.value for key, value in spec.rope.items()}
    factor = float(keys.get("scaling.factor", 1.0))
    yarn = keys.get("scaling.type") == "yarn"
    result = np.empty((len(position), dim // 2))
    for i in range(dim // 2):
        frequency = base ** (-2 * i / dim)
        share = 0.0  # of the untouched frequency
        if yarn:
            context = keys["scaling.original_context_length"]

            def pair(turns: float, context: Any = context) -> float:
                return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

            low = max(math.floor(pair(keys.get("scaling.yarn_beta_fast", 32.0))), 0)
            high = min(math.ceil(pair(keys.get("scaling.yarn_beta_slow", 1.0))), dim - 1)
            share = 1 - min(max((i - low) / max(high - low, 0.001), 0.0), 1.0)
        result[:, i] = position * (frequency * share + frequency / factor * (1 - share))
    magnitude = 1 + 0.1 * math.log(factor) if yarn else 1.0
    return result, magnitude * keys.get("scaling.attn_factor", 1.0)


def norm(x: Array, weight: Array, eps: float = 1e-6) -> Array:
    """RMSNorm over the last axis."""
    return x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + eps) * weight
