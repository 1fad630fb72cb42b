"""What a model without matrices is made of: random rows by token, for every input of a layer."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from specla.fuzz.tiny import VOCAB, tiny_config
from specla.models.qwen35.config import Qwen35Config

Float32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Shapes:
    """pattern: a letter per layer, g(ated DeltaNet) or a(ttention). Other fields as in the config.
    Every layer's output is value_heads * value_dim wide."""

    pattern: str = "gag"
    key_heads: int = 2
    value_heads: int = 4
    key_dim: int = 8
    value_dim: int = 8
    kv_heads: int = 2
    conv_width: int = 4

    @property
    def config(self) -> Qwen35Config:
        """A model of these shapes."""
        return replace(
            tiny_config(
                self.pattern, self.value_heads * self.value_dim, conv_width=self.conv_width
            ),
            n_heads=self.value_heads,
            n_kv_heads=self.kv_heads,
            head_dim=self.value_dim,
            rotary_dim=self.value_dim // 2 // 2 * 2 or 2,
            n_key_heads=self.key_heads,
            n_value_heads=self.value_heads,
            key_dim=self.key_dim,
            value_dim=self.value_dim,
        )


@dataclass(frozen=True)
class GdnTables:
    """Inputs of a recurrent layer: qkv [vocab, channels], alpha and beta [vocab, value_heads]; its
    vectors: conv [conv_width, channels], a and dt_bias [value_heads]."""

    qkv: Float32
    alpha: Float32
    beta: Float32
    conv: Float32
    a: Float32
    dt_bias: Float32


@dataclass(frozen=True)
class AttentionTables:
    """Inputs of an attention layer: q [vocab, heads * head_dim], k and v [vocab, kv_heads *
    head_dim]; its vectors: q_norm and k_norm [head_dim]."""

    q: Float32
    k: Float32
    v: Float32
    q_norm: Float32
    k_norm: Float32


def make_tables(config: Qwen35Config, seed: int) -> list[GdnTables | AttentionTables]:
    """One per layer."""
    rng = np.random.default_rng(seed)

    def normal(*shape: int, mean: float = 0.0, spread: float = 1.0) -> Float32:
        return (mean + spread * rng.standard_normal(shape)).astype(np.float32)

    def gdn() -> GdnTables:
        heads, channels = config.n_value_heads, config.conv_channels
        return GdnTables(
            qkv=normal(VOCAB, channels),
            alpha=normal(VOCAB, heads),
            beta=normal(VOCAB, heads, spread=2.0),
            conv=normal(config.conv_width, channels, spread=0.6),
            # decays from about 0.3 to 0.99: state forgets, but a lost or doubled fold shows
            a=-np.exp(rng.uniform(-4, 0.5, heads)).astype(np.float32),
            dt_bias=normal(heads, spread=0.5),
        )

    def attention() -> AttentionTables:
        kv = config.n_kv_heads * config.head_dim
        return AttentionTables(
            q=normal(VOCAB, config.n_heads * config.head_dim),
            k=normal(VOCAB, kv),
            v=normal(VOCAB, kv),
            # sharp enough that attention looks at particular positions
            q_norm=normal(config.head_dim, mean=2.0, spread=0.2),
            k_norm=normal(config.head_dim, mean=2.0, spread=0.2),
        )

    return [attention() if full else gdn() for full in config.attention_layers]
