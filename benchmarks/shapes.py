"""Shapes of published Qwen3.5 models, by name, for files with random weights."""

from __future__ import annotations

from dataclasses import dataclass

from specla.models.qwen35.config import Qwen35Config


@dataclass(frozen=True)
class Shape:
    """A dense Qwen3.5: sizes as in its config.json. Every `interval`-th layer is full attention.

    n_control: control tokens at the end of the vocabulary; n_unused: ids without a token.
    """

    n_layers: int
    d_model: int
    d_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_key_heads: int
    n_value_heads: int
    gdn_head_dim: int
    rotary_dim: int
    rope_sections: tuple[int, int, int, int]
    vocab_size: int = 248_320
    n_control: int = 33
    n_unused: int = 243
    tied: bool = True
    rope_base: float = 1e7
    interval: int = 4
    conv_width: int = 4
    context_length: int = 262_144

    def config(self, name: str) -> Qwen35Config:
        """The same as specla's configuration of a target."""
        return Qwen35Config(
            name=name,
            n_layers=self.n_layers,
            n_mtp_layers=0,
            d_model=self.d_model,
            d_ff=self.d_ff,
            vocab_size=self.vocab_size,
            context_length=self.context_length,
            n_heads=self.n_heads,
            n_kv_heads=self.n_kv_heads,
            head_dim=self.head_dim,
            rotary_dim=self.rotary_dim,
            rope_base=self.rope_base,
            n_key_heads=self.n_key_heads,
            n_value_heads=self.n_value_heads,
            key_dim=self.gdn_head_dim,
            value_dim=self.gdn_head_dim,
            conv_width=self.conv_width,
            attention_layers=tuple(
                (layer + 1) % self.interval == 0 for layer in range(self.n_layers)
            ),
            rms_eps=1e-6,
            tied_output=self.tied,
            eos_ids=(),
        )


def _qwen(n_layers: int, d_model: int, d_ff: int, heads: tuple[int, int], values: int) -> Shape:
    return Shape(
        n_layers, d_model, d_ff, *heads, 256, 16, values, 128, 64, (11, 11, 10, 0),
        tied=d_model < 4096,
    )  # fmt: skip


SHAPES = {
    # as the bundled demo, but for rows that K-quants can store (blocks of 256)
    "demo": Shape(
        8, 256, 768, 4, 1, 64, 2, 4, 64, 32, (6, 5, 5, 0),
        vocab_size=2048, n_control=3, n_unused=5, rope_base=10_000.0, context_length=2048,
    ),
    "0.8b": _qwen(24, 1024, 3584, (8, 2), 16),
    "2b": _qwen(24, 2048, 6144, (8, 2), 16),
    "4b": _qwen(32, 2560, 9216, (16, 4), 32),
    "9b": _qwen(32, 4096, 12288, (16, 4), 32),
    "27b": _qwen(64, 5120, 17408, (24, 4), 48),
}  # fmt: skip
