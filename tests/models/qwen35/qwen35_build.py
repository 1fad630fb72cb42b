"""A small random `qwen35` GGUF for tests: metadata and tensors that tests then change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from models.gguf.gguf_build import Tensor, gguf_bytes, tensor

from specla.models.gguf import GgufFile

WIDTH, FFN, VOCAB, HEADS, KV_HEADS, HEAD = 24, 40, 50, 4, 2, 8
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, TAPS, LAYERS = 2, 6, 5, 7, 3, 5
INNER, CHANNELS = VALUE_HEADS * VALUE_DIM, 2 * KEY_HEADS * KEY_DIM + VALUE_HEADS * VALUE_DIM


def metadata() -> dict[str, Any]:
    keys: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": WIDTH,
        "feed_forward_length": FFN,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD,
        "attention.value_length": HEAD,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": 4,
        "rope.dimension_sections": [1, 1, 0, 0],
        "rope.freq_base": 1e7,
        "ssm.conv_kernel": TAPS,
        "ssm.state_size": KEY_DIM,
        "ssm.group_count": KEY_HEADS,
        "ssm.time_step_rank": VALUE_HEADS,
        "ssm.inner_size": INNER,
        "full_attention_interval": 4,
    }
    result: dict[str, Any] = {"general.architecture": "qwen35", "general.name": "tiny"}
    result.update({f"qwen35.{key}": value for key, value in keys.items()})
    return result | {"tokenizer.ggml.eos_token_id": 3}


def shapes(n_layers: int = LAYERS, attention: tuple[int, ...] = (3,)) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (VOCAB, WIDTH),
        "output_norm.weight": (WIDTH,),
    }
    for layer in range(n_layers):
        block: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (WIDTH,),
            "post_attention_norm.weight": (WIDTH,),
            "ffn_gate.weight": (FFN, WIDTH),
            "ffn_up.weight": (FFN, WIDTH),
            "ffn_down.weight": (WIDTH, FFN),
        }
        if layer in attention:
            block |= {
                "attn_q.weight": (2 * HEADS * HEAD, WIDTH),
                "attn_k.weight": (KV_HEADS * HEAD, WIDTH),
                "attn_v.weight": (KV_HEADS * HEAD, WIDTH),
                "attn_output.weight": (WIDTH, HEADS * HEAD),
                "attn_q_norm.weight": (HEAD,),
                "attn_k_norm.weight": (HEAD,),
            }
        else:
            block |= {
                "attn_qkv.weight": (CHANNELS, WIDTH),
                "attn_gate.weight": (INNER, WIDTH),
                "ssm_alpha.weight": (VALUE_HEADS, WIDTH),
                "ssm_beta.weight": (VALUE_HEADS, WIDTH),
                "ssm_out.weight": (WIDTH, INNER),
                "ssm_conv1d.weight": (CHANNELS, TAPS),
                "ssm_a": (VALUE_HEADS,),
                "ssm_dt.bias": (VALUE_HEADS,),
                "ssm_norm.weight": (VALUE_DIM,),
            }
        found |= {f"blk.{layer}.{name}": shape for name, shape in block.items()}
    return found


def arrays(seed: int = 0, **kwargs: Any) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {
        name: rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes(**kwargs).items()
    }


def tensors(**kwargs: Any) -> dict[str, Tensor]:
    return {name: tensor(array) for name, array in arrays(**kwargs).items()}


def write(path: Path, keys: dict[str, Any], held: dict[str, Tensor]) -> GgufFile:
    path.write_bytes(gguf_bytes(keys, held))
    return GgufFile.open(path)
