"""A tiny DFlash drafter for the tiny model, in llama.cpp's naming."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from cli.cli_model import WIDTH
from models.gguf.gguf_build import Typed, gguf_bytes, tensor
from models.tokenizer.tokenizer_helpers import tiny_metadata

HEADS, HEAD, FFN, RANK = 2, 16, 32, 4


def write_draft(
    path: Path,
    *,
    width: int = WIDTH,
    tokens: int | None = None,
    target_layers: tuple[int, ...] = (1,),
    heads: bool = False,
    changes: dict[str, Any] | None = None,
) -> Path:
    """tokens: how many of the model's tokens it knows, None for all.  target_layers: as in the
    file, one more than the layer whose output is read.  heads: DSpark's Markov head.  changes: to
    the metadata."""
    tokenizer = tiny_metadata()
    listed: list[str] = tokenizer["tokenizer.ggml.tokens"][:tokens]  # type: ignore[index]
    metadata: dict[str, Any] = {
        "general.architecture": "dflash",
        "general.name": "tiny draft",
        "tokenizer.ggml.tokens": listed,
        "tokenizer.ggml.mask_token_id": 0,
        "dflash.target_layers": Typed("i32", list(target_layers)),
    }
    metadata |= {
        f"dflash.{key}": value
        for key, value in {
            "block_count": 1,
            "context_length": 256,
            "embedding_length": width,
            "feed_forward_length": FFN,
            "attention.head_count": HEADS,
            "attention.head_count_kv": 1,
            "attention.key_length": HEAD,
            "attention.value_length": HEAD,
            "attention.layer_norm_rms_epsilon": 1e-6,
            "rope.freq_base": 1e4,
            "block_size": 8,
        }.items()
    } | (changes or {})
    shapes: dict[str, tuple[int, ...]] = {
        "fc.weight": (width, width * len(target_layers)),
        "enc.output_norm.weight": (width,),
        "output_norm.weight": (width,),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.ffn_norm.weight": (width,),
        "blk.0.attn_q.weight": (HEADS * HEAD, width),
        "blk.0.attn_k.weight": (HEAD, width),
        "blk.0.attn_v.weight": (HEAD, width),
        "blk.0.attn_output.weight": (width, HEADS * HEAD),
        "blk.0.attn_q_norm.weight": (HEAD,),
        "blk.0.attn_k_norm.weight": (HEAD,),
        "blk.0.ffn_gate.weight": (FFN, width),
        "blk.0.ffn_up.weight": (FFN, width),
        "blk.0.ffn_down.weight": (width, FFN),
    }
    if heads:
        shapes |= {
            "markov_w1.weight": (len(listed), RANK),
            "markov_w2.weight": (len(listed), RANK),
        }
    rng = np.random.default_rng(3)
    held = {
        name: tensor((0.3 * rng.standard_normal(shape) + (len(shape) == 1)).astype(np.float32))
        for name, shape in shapes.items()
    }
    path.write_bytes(gguf_bytes(metadata, held))
    return path
