"""Which checkpoint tensor becomes which GGUF tensor, and how its values and rows change."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from specla.models.convert.heads import grouped_of_tiled, qkv_order, spread
from specla.models.qwen35.config import Qwen35Config

Change = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Move:
    """One tensor's way from the checkpoint to the file.

    source: checkpoint name below the model's prefix.  target: GGUF name.
    shape: GGUF shape, row-major; vectors are one row.
    source_shape: shape in the checkpoint, when it isn't `shape`.
    matrix: whether it is stored in the wanted type (else F32).
    rows, cols: source index of each target row or column, or None.
    change: applied to the float32 values, or None.
    """

    source: str
    target: str
    shape: tuple[int, ...]
    source_shape: tuple[int, ...] | None = None
    matrix: bool = True
    rows: np.ndarray | None = None
    cols: np.ndarray | None = None
    change: Change | None = None


def plus_one(weights: np.ndarray) -> np.ndarray:
    """A zero-centred norm's weight as a plain factor."""
    return np.float32(1.0) + weights


def negative_exp(values: np.ndarray) -> np.ndarray:
    """A_log to ssm_a = -exp(A_log), rounded once from float64."""
    return (-np.exp(values.astype(np.float64))).astype(np.float32)


def _norm(source: str, target: str, size: int) -> Move:
    return Move(source, target, (size,), matrix=False, change=plus_one)


def trunk_moves(config: Qwen35Config) -> list[Move]:
    """All tensors of the trunk, below the text model's prefix."""
    vocab, width = config.vocab_size, config.d_model
    moves = [Move("embed_tokens.weight", "token_embd.weight", (vocab, width))]
    for layer, attention in enumerate(config.attention_layers):
        block = attention_moves if attention else gdn_moves
        moves += block(config, f"layers.{layer}", f"blk.{layer}")
    return [*moves, _norm("norm.weight", "output_norm.weight", width)]


def mtp_moves(config: Qwen35Config) -> list[Move]:
    """The extra prediction layer, below no prefix, as block `n_layers`."""
    width, block = config.d_model, f"blk.{config.n_layers}"
    return [
        *attention_moves(config, "mtp.layers.0", block),
        # input order: embedding, then hidden state, in both
        Move("mtp.fc.weight", f"{block}.nextn.eh_proj.weight", (width, 2 * width)),
        _norm("mtp.pre_fc_norm_embedding.weight", f"{block}.nextn.enorm.weight", width),
        _norm("mtp.pre_fc_norm_hidden.weight", f"{block}.nextn.hnorm.weight", width),
        _norm("mtp.norm.weight", f"{block}.nextn.shared_head_norm.weight", width),
    ]


def _ffn_moves(config: Qwen35Config, source: str, target: str) -> list[Move]:
    width, inner = config.d_model, config.d_ff
    norm = "post_attention"
    return [
        _norm(f"{source}.input_layernorm.weight", f"{target}.attn_norm.weight", width),
        _norm(f"{source}.{norm}_layernorm.weight", f"{target}.{norm}_norm.weight", width),
        Move(f"{source}.mlp.gate_proj.weight", f"{target}.ffn_gate.weight", (inner, width)),
        Move(f"{source}.mlp.up_proj.weight", f"{target}.ffn_up.weight", (inner, width)),
        Move(f"{source}.mlp.down_proj.weight", f"{target}.ffn_down.weight", (width, inner)),
    ]


def attention_moves(config: Qwen35Config, source: str, target: str) -> list[Move]:
    """A full-attention layer; [query | gate] per head in both, so no row moves."""
    width, head = config.d_model, config.head_dim
    query, kv = config.n_heads * head, config.n_kv_heads * head
    attention = f"{source}.self_attn"
    return [
        *_ffn_moves(config, source, target),
        Move(f"{attention}.q_proj.weight", f"{target}.attn_q.weight", (2 * query, width)),
        Move(f"{attention}.k_proj.weight", f"{target}.attn_k.weight", (kv, width)),
        Move(f"{attention}.v_proj.weight", f"{target}.attn_v.weight", (kv, width)),
        Move(f"{attention}.o_proj.weight", f"{target}.attn_output.weight", (width, query)),
        _norm(f"{attention}.q_norm.weight", f"{target}.attn_q_norm.weight", head),
        _norm(f"{attention}.k_norm.weight", f"{target}.attn_k_norm.weight", head),
    ]


def gdn_moves(config: Qwen35Config, source: str, target: str) -> list[Move]:
    """A Gated-DeltaNet layer; everything per value head goes from grouped to tiled order."""
    width, channels, taps = config.d_model, config.conv_channels, config.conv_width
    n_key, n_value, size = config.n_key_heads, config.n_value_heads, config.value_dim
    heads = grouped_of_tiled(n_key, n_value)
    features = spread(heads, size)
    qkv = qkv_order(n_key, n_value, config.key_dim, size)
    inner, linear = n_value * size, f"{source}.linear_attn"

    def per_head(name: str, stored: str, change: Change | None = None) -> Move:
        return Move(
            f"{linear}.{name}", f"{target}.{stored}", (n_value,), None, False, None, heads, change
        )

    def rows(name: str, stored: str, order: np.ndarray) -> Move:
        shape = (len(order), width)
        return Move(f"{linear}.{name}.weight", f"{target}.{stored}.weight", shape, rows=order)

    return [
        *_ffn_moves(config, source, target),
        rows("in_proj_qkv", "attn_qkv", qkv),
        rows("in_proj_z", "attn_gate", features),
        rows("in_proj_a", "ssm_alpha", heads),
        rows("in_proj_b", "ssm_beta", heads),
        Move(
            f"{linear}.conv1d.weight",
            f"{target}.ssm_conv1d.weight",
            (channels, taps),
            source_shape=(channels, 1, taps),
            matrix=False,
            rows=qkv,
        ),
        per_head("A_log", "ssm_a", negative_exp),
        per_head("dt_bias", "ssm_dt.bias"),
        # the gated norm is not zero-centred
        Move(f"{linear}.norm.weight", f"{target}.ssm_norm.weight", (size,), matrix=False),
        Move(
            f"{linear}.out_proj.weight", f"{target}.ssm_out.weight", (width, inner), cols=features
        ),
    ]
