"""A random `qwen35` target so small that a forward pass takes milliseconds."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from specla.backends.base import Backend
from specla.backends.weights import WeightSource
from specla.models.qwen35.config import Qwen35Config
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.target import Qwen35Target
from specla.models.qwen35.weights import AttentionWeights, FfnWeights, GdnWeights, Qwen35Weights

VOCAB = 40


def source(name: str, values: np.ndarray, kind: str = "F32") -> WeightSource:
    """A float32 matrix in a file's encoding. kind: any that gguf's quantize() can write."""
    rows, cols = values.shape
    if kind == "F32":
        data = np.ascontiguousarray(values, dtype=np.float32).view(np.uint8)
    else:
        # float16 comes as such, everything else as bytes
        data = quantize(np.ascontiguousarray(values), GGMLQuantizationType[kind]).view(np.uint8)
    return WeightSource(name, kind, rows, cols, data.reshape(rows, -1))


def tiny_config(
    pattern: str = "gag", d_model: int = 32, *, conv_width: int = 4, tied: bool = True
) -> Qwen35Config:
    """pattern: one letter per layer, g(ated DeltaNet) or a(ttention)."""
    return Qwen35Config(
        name="tiny",
        n_layers=len(pattern),
        n_mtp_layers=0,
        d_model=d_model,
        d_ff=32,
        vocab_size=VOCAB,
        context_length=4096,
        n_heads=4,
        n_kv_heads=2,
        head_dim=8,
        rotary_dim=4,
        rope_base=10000.0,
        n_key_heads=2,
        n_value_heads=4,
        key_dim=8,
        value_dim=8,
        conv_width=conv_width,
        attention_layers=tuple(letter == "a" for letter in pattern),
        rms_eps=1e-6,
        tied_output=tied,
        eos_ids=(),
    )


class _Maker:
    def __init__(self, config: Qwen35Config, seed: int, kind: str) -> None:
        self.config, self.kind = config, kind
        self.rng = np.random.default_rng(seed)

    def matrix(self, name: str, rows: int, cols: int, gain: float = 1.0) -> WeightSource:
        # about unit gain: hidden values stay near 1 through all layers
        values = self.rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)
        return source(name, values.astype(np.float32), self.kind)

    def vector(self, size: int, mean: float, spread: float) -> np.ndarray:
        return (mean + spread * self.rng.standard_normal(size)).astype(np.float32)

    def ffn(self) -> FfnWeights:
        width, hidden = self.config.d_model, self.config.d_ff
        return FfnWeights(
            self.matrix("gate", hidden, width),
            self.matrix("up", hidden, width),
            self.matrix("down", width, hidden),
        )

    def gdn(self) -> GdnWeights:
        c = self.config
        inner = c.n_value_heads * c.value_dim
        # decays from about 0.3 to 0.99: state forgets, but a lost or doubled fold shows for long
        a = -np.exp(self.rng.uniform(-4, 0.5, c.n_value_heads)).astype(np.float32)
        return GdnWeights(
            attn_norm=self.vector(c.d_model, 1.0, 0.1),
            ffn_norm=self.vector(c.d_model, 1.0, 0.1),
            qkv=self.matrix("qkv", c.conv_channels, c.d_model),
            z=self.matrix("z", inner, c.d_model),
            alpha=self.matrix("alpha", c.n_value_heads, c.d_model),
            beta=self.matrix("beta", c.n_value_heads, c.d_model, 2.0),
            out=self.matrix("out", c.d_model, inner),
            conv=self.vector(c.conv_width * c.conv_channels, 0.0, 0.6).reshape(c.conv_width, -1),
            a=a,
            dt_bias=self.vector(c.n_value_heads, 0.0, 0.5),
            norm=self.vector(c.value_dim, 1.0, 0.1),
            ffn=self.ffn(),
        )

    def attention(self) -> AttentionWeights:
        c = self.config
        query, kv = c.n_heads * c.head_dim, c.n_kv_heads * c.head_dim
        return AttentionWeights(
            attn_norm=self.vector(c.d_model, 1.0, 0.1),
            ffn_norm=self.vector(c.d_model, 1.0, 0.1),
            q=self.matrix("q", 2 * query, c.d_model),
            k=self.matrix("k", kv, c.d_model),
            v=self.matrix("v", kv, c.d_model),
            out=self.matrix("o", c.d_model, query),
            # sharp enough that attention looks at particular positions
            q_norm=self.vector(c.head_dim, 2.0, 0.2),
            k_norm=self.vector(c.head_dim, 2.0, 0.2),
            ffn=self.ffn(),
        )


def tiny_weights(
    seed: int = 0, pattern: str = "gag", kind: str = "F32", **config: Any
) -> Qwen35Weights:
    """Random weights of sane magnitudes, made in memory. kind: encoding of the matrices."""
    made = tiny_config(pattern, **config)
    maker = _Maker(made, seed, kind)
    embedding = maker.matrix("embedding", VOCAB, made.d_model, np.sqrt(made.d_model))
    output = embedding if made.tied_output else maker.matrix("output", VOCAB, made.d_model)
    layers = tuple(maker.attention() if letter == "a" else maker.gdn() for letter in pattern)
    return Qwen35Weights(made, embedding, output, maker.vector(made.d_model, 1.0, 0.1), layers)


def tiny_target(
    backend: Backend,
    seed: int = 0,
    *,
    pattern: str = "gag",
    kind: str = "F32",
    config: dict[str, Any] | None = None,
    **options: Any,
) -> Qwen35Target:
    """A tiny target with poisoned memory. options: fields of TargetOptions."""
    settings = {"context": 160, "max_nodes": 9, "chunk": 16, "slots": 3, "poison": True} | options
    weights = tiny_weights(seed, pattern, kind, **(config or {}))
    return Qwen35Target(weights, backend, TargetOptions(**settings))
