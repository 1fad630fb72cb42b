"""A tiny random `qwen35` model with a tokenizer, written for the command line's tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from models.gguf.gguf_build import Tensor, gguf_bytes, tensor
from models.tokenizer.tokenizer_helpers import tiny_metadata

WIDTH, FFN, HEADS, KV_HEADS, HEAD = 32, 32, 2, 1, 16
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS, LAYERS = 1, 2, 8, 8, 4, 2
CONTEXT = 256
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def keys(**changes: Any) -> dict[str, Any]:
    """Metadata. changes: `block_count=...` sets `qwen35.block_count`; None removes a key."""
    own: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": 8,
        "rope.freq_base": 1e4,
        "ssm.conv_kernel": TAPS,
        "ssm.state_size": KEY_DIM,
        "ssm.group_count": KEY_HEADS,
        "ssm.time_step_rank": VALUE_HEADS,
        "ssm.inner_size": VALUE_HEADS * VALUE_DIM,
        "full_attention_interval": 2,
    }
    own |= changes
    result: dict[str, Any] = {"general.architecture": "qwen35", "general.name": "tiny"}
    result |= {f"qwen35.{key}": value for key, value in own.items() if value is not None}
    return result | tiny_metadata(chat_template=TEMPLATE)


def _shapes(vocab: int) -> dict[str, tuple[int, ...]]:
    inner, channels = VALUE_HEADS * VALUE_DIM, 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, WIDTH),
        "output_norm.weight": (WIDTH,),
        "output.weight": (vocab, WIDTH),
        "blk.0.attn_qkv.weight": (channels, WIDTH),
        "blk.0.attn_gate.weight": (inner, WIDTH),
        "blk.0.ssm_alpha.weight": (VALUE_HEADS, WIDTH),
        "blk.0.ssm_beta.weight": (VALUE_HEADS, WIDTH),
        "blk.0.ssm_out.weight": (WIDTH, inner),
        "blk.0.ssm_conv1d.weight": (channels, TAPS),
        "blk.0.ssm_a": (VALUE_HEADS,),
        "blk.0.ssm_dt.bias": (VALUE_HEADS,),
        "blk.0.ssm_norm.weight": (VALUE_DIM,),
        "blk.1.attn_q.weight": (2 * HEADS * HEAD, WIDTH),
        "blk.1.attn_k.weight": (KV_HEADS * HEAD, WIDTH),
        "blk.1.attn_v.weight": (KV_HEADS * HEAD, WIDTH),
        "blk.1.attn_output.weight": (WIDTH, HEADS * HEAD),
        "blk.1.attn_q_norm.weight": (HEAD,),
        "blk.1.attn_k_norm.weight": (HEAD,),
    }
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.post_attention_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_gate.weight": (FFN, WIDTH),
            f"blk.{layer}.ffn_up.weight": (FFN, WIDTH),
            f"blk.{layer}.ffn_down.weight": (WIDTH, FFN),
        }
    return shapes


def tensors(seed: int = 5) -> dict[str, Tensor]:
    rng = np.random.default_rng(seed)
    vocab = len(keys()["tokenizer.ggml.tokens"])
    result = {}
    for name, shape in _shapes(vocab).items():
        scale = 1.0 if len(shape) == 1 or name == "token_embd.weight" else 0.3
        array = (scale * rng.standard_normal(shape)).astype(np.float32)
        if name.endswith("norm.weight"):
            array = np.abs(array) + 0.5
        if name.endswith("ssm_a"):
            array = -np.abs(array)
        result[name] = tensor(array.astype(np.float32))
    return result


def model_bytes(
    changed_keys: dict[str, Any] | None = None, changed_tensors: dict[str, Any] | None = None
) -> bytes:
    """The file. A change to None removes the key or tensor."""
    metadata = keys() | (changed_keys or {})
    held: dict[str, Any] = tensors() | (changed_tensors or {})
    return gguf_bytes(
        {key: value for key, value in metadata.items() if value is not None},
        {name: value for name, value in held.items() if value is not None},
    )


def write_model(path: Path, *changes: dict[str, Any]) -> Path:
    path.write_bytes(model_bytes(*changes))
    return path
