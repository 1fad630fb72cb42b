"""Which tensor of a drafter checkpoint becomes which GGUF tensor, in llama.cpp's names.

Nothing changes its values: a drafter's norms are plain factors. Names are those of the checkpoint
without a leading `model.`.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from specla.models.convert.dflash.config import Dflash2, DrafterConfig
from specla.models.convert.dflash.dspark_heads import BIAS, CONFIDENCE, W1, W2, DsparkHeads
from specla.models.convert.heads import spread
from specla.models.convert.plan import Move

EMBEDDING, HEAD, MAP = "embed_tokens.weight", "lm_head.weight", "d2t"
# attention sinks, one number per head, under the names in use
SINKS = ("self_attn.sinks", "self_attn.sinks.weight", "self_attn.attention_sink_bias",
         "self_attn.attention_sink_bias.weight")  # fmt: skip
_SELECTOR = "candidate_selector"


def backbone_moves(config: DrafterConfig, names: Collection[str]) -> list[Move]:
    """All tensors but the embedding, the head and the DSpark heads.

    names: the checkpoint's, to choose among spellings and optional tensors.
    """
    width, n_features = config.d_model, len(config.captured)
    moves = [
        Move("fc.weight", "fc.weight", (width, n_features * width)),
        _norm("hidden_norm.weight", "enc.output_norm.weight", width),
        _norm("norm.weight", "output_norm.weight", width),
    ]
    for layer in range(config.n_layers):
        moves += _layer_moves(config, f"layers.{layer}", f"blk.{layer}", names)
    if config.dflash2 is not None:
        moves += _dflash2_moves(config, config.dflash2, names)
    return moves


def head_moves(heads: DsparkHeads) -> list[Move]:
    """The DSpark heads, whose sources have their GGUF names and shapes already."""
    kinds = ((W1, True), (W2, True), (CONFIDENCE, False), (BIAS, False))
    return [
        Move(name, name, heads.tensors[name].shape, matrix=matrix)
        for name, matrix in kinds
        if name in heads.tensors
    ]


def _norm(source: str, target: str, size: int) -> Move:
    return Move(source, target, (size,), matrix=False)


def _layer_moves(
    config: DrafterConfig, source: str, target: str, names: Collection[str]
) -> list[Move]:
    width, inner, head = config.d_model, config.d_ff, config.head_dim
    query, kv = config.n_heads * head, config.n_kv_heads * head
    attention = f"{source}.self_attn"
    # pairs (2i, 2i + 1) become halves (i, i + head / 2)
    order = np.arange(head).reshape(-1, 2).T.ravel() if config.interleaved_rope else None

    def rotated(name: str, stored: str, n_heads: int) -> Move:
        rows = None
        if order is not None:
            rows = (spread(np.arange(n_heads), head).reshape(n_heads, head)[:, order]).ravel()
        shape = (n_heads * head, width)
        return Move(f"{attention}.{name}.weight", f"{target}.{stored}.weight", shape, rows=rows)

    def head_norm(name: str, stored: str) -> Move:
        return Move(
            f"{attention}.{name}.weight", f"{target}.{stored}.weight", (head,), matrix=False,
            cols=order,
        )  # fmt: skip

    moves = [
        _norm(f"{source}.input_layernorm.weight", f"{target}.attn_norm.weight", width),
        rotated("q_proj", "attn_q", config.n_heads),
        rotated("k_proj", "attn_k", config.n_kv_heads),
        Move(f"{attention}.v_proj.weight", f"{target}.attn_v.weight", (kv, width)),
        Move(f"{attention}.o_proj.weight", f"{target}.attn_output.weight", (width, query)),
        head_norm("q_norm", "attn_q_norm"),
        head_norm("k_norm", "attn_k_norm"),
        _norm(f"{source}.post_attention_layernorm.weight", f"{target}.ffn_norm.weight", width),
        Move(f"{source}.mlp.gate_proj.weight", f"{target}.ffn_gate.weight", (inner, width)),
        Move(f"{source}.mlp.up_proj.weight", f"{target}.ffn_up.weight", (inner, width)),
        Move(f"{source}.mlp.down_proj.weight", f"{target}.ffn_down.weight", (width, inner)),
    ]
    for name in SINKS:
        if f"{source}.{name}" in names:
            sinks = f"{target}.attn_sinks.weight"
            moves.append(_norm(f"{source}.{name}", sinks, config.n_heads))
    return moves


def _dflash2_moves(config: DrafterConfig, extra: Dflash2, names: Collection[str]) -> list[Move]:
    width, taps = config.d_model, extra.conv_kernel
    projected = 2 * taps * (width // extra.conv_group)
    moves = []
    for layer in range(config.n_layers):
        for side, stored in (("attention_conv", "attn_conv"), ("mlp_conv", "ffn_conv")):
            source, target = f"layers.{layer}.{side}", f"blk.{layer}.{stored}"
            # the only tensors without ".weight", in both formats
            base = Move(f"{source}.base_kernel", f"{target}_base", (2, taps, width), matrix=False)
            name = f"{source}.kernel_projection.weight"
            moves += [base, Move(name, f"{target}_proj.weight", (projected, width))]
    for book in ("predecessor", "successor"):
        name = f"{_SELECTOR}.{book}_codebook"
        name = f"{name}.weight" if f"{name}.weight" in names else name
        moves.append(Move(name, f"selector_{book}.weight", (config.vocab_size, extra.rank)))
    name = f"{_SELECTOR}.hidden_projection.weight"
    return [*moves, Move(name, "selector_hidden.weight", (extra.rank, width))]
