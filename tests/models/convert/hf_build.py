"""Random Hugging Face Qwen3.5 checkpoints for tests, written without torch."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

_DTYPES = {"F32": "<f4", "F16": "<f2", "I64": "<i8"}
ALPHABET = [chr(c) for c in [*range(33, 127), *range(161, 173), *range(174, 256)]] + [
    chr(256 + n) for n in range(68)
]
QWEN35_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def to_bytes(array: np.ndarray, dtype: str) -> bytes:
    if dtype == "BF16":
        # values used in tests fit bfloat16 exactly, so the upper half is all of it
        bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
        assert not (bits & 0xFFFF).any()
        return (bits >> 16).astype("<u2").tobytes()
    return array.astype(_DTYPES[dtype]).tobytes()


def write_safetensors(path: Path, tensors: dict[str, np.ndarray], dtype: str = "F32") -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    body = b""
    for name, array in tensors.items():
        kind = "I64" if array.dtype == np.int64 else dtype
        raw = to_bytes(array, kind)
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [len(body), len(body) + len(raw)],
        }
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def config(**changes: Any) -> dict[str, Any]:
    """A text configuration as transformers writes it."""
    found: dict[str, Any] = {
        "model_type": "qwen3_5_text",
        "vocab_size": 300,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 5,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "hidden_act": "silu",
        "attention_bias": False,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 6,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 16,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 512,
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True,
        "eos_token_id": 2,
        "bos_token_id": None,
        "pad_token_id": None,
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 1e7,
            "partial_rotary_factor": 0.25,
            "mrope_section": [1, 1, 0],
            "mrope_interleaved": True,
        },
        "layer_types": None,
    }
    found.update(changes)
    if found["layer_types"] is None:
        found["layer_types"] = [
            "linear_attention" if (layer + 1) % 4 else "full_attention"
            for layer in range(found["num_hidden_layers"])
        ]
    return found


def _layer_shapes(c: dict[str, Any], attention: bool) -> dict[str, tuple[int, ...]]:
    width, inner = c["hidden_size"], c["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
    }
    if attention:
        heads, kv, head = c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        return shapes | {
            "self_attn.q_proj.weight": (2 * heads * head, width),
            "self_attn.k_proj.weight": (kv * head, width),
            "self_attn.v_proj.weight": (kv * head, width),
            "self_attn.o_proj.weight": (width, heads * head),
            "self_attn.q_norm.weight": (head,),
            "self_attn.k_norm.weight": (head,),
        }
    n_key, n_value = c["linear_num_key_heads"], c["linear_num_value_heads"]
    value = n_value * c["linear_value_head_dim"]
    channels = 2 * n_key * c["linear_key_head_dim"] + value
    return shapes | {
        "linear_attn.in_proj_qkv.weight": (channels, width),
        "linear_attn.in_proj_z.weight": (value, width),
        "linear_attn.in_proj_a.weight": (n_value, width),
        "linear_attn.in_proj_b.weight": (n_value, width),
        "linear_attn.conv1d.weight": (channels, 1, c["linear_conv_kernel_dim"]),
        "linear_attn.A_log": (n_value,),
        "linear_attn.dt_bias": (n_value,),
        "linear_attn.norm.weight": (c["linear_value_head_dim"],),
        "linear_attn.out_proj.weight": (width, value),
    }


def shapes(c: dict[str, Any], prefix: str = "model.", mtp: bool = False) -> dict[str, Any]:
    width = c["hidden_size"]
    found: dict[str, tuple[int, ...]] = {
        f"{prefix}embed_tokens.weight": (c["vocab_size"], width),
        f"{prefix}norm.weight": (width,),
    }
    for layer, kind in enumerate(c["layer_types"]):
        for name, shape in _layer_shapes(c, kind == "full_attention").items():
            found[f"{prefix}layers.{layer}.{name}"] = shape
    if not c["tie_word_embeddings"]:
        found["lm_head.weight"] = (c["vocab_size"], width)
    if mtp:
        for name, shape in _layer_shapes(c, True).items():
            found[f"mtp.layers.0.{name}"] = shape
        found |= {
            "mtp.fc.weight": (width, 2 * width),
            "mtp.pre_fc_norm_embedding.weight": (width,),
            "mtp.pre_fc_norm_hidden.weight": (width,),
            "mtp.norm.weight": (width,),
        }
    return found


def arrays(c: dict[str, Any], seed: int = 0, **kwargs: Any) -> dict[str, np.ndarray]:
    """Random tensors that every float type of a checkpoint holds exactly (7 significant bits)."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.integers(-127, 128, shape) / 64).astype(np.float32)
        for name, shape in shapes(c, **kwargs).items()
    }


def write_checkpoint(
    folder: Path,
    c: dict[str, Any],
    tensors: dict[str, np.ndarray],
    *,
    dtype: str = "F32",
    shards: int = 1,
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(c))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return folder
    weight_map = {}
    for shard in range(shards):
        name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
        part = {key: tensors[key] for key in list(tensors)[shard::shards]}
        write_safetensors(folder / name, part, dtype)
        weight_map |= dict.fromkeys(part, name)
    index = {"metadata": {}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def tokenizer_json(size: int = 290) -> dict[str, Any]:
    """A byte-level BPE tokenizer.json: bytes, a few merges, three added tokens at the end."""
    words = ["Ġ t", "h e", "Ġt he", "i n", "e r", "Ġ a"]
    tokens = ALPHABET + [merge.replace(" ", "") for merge in words]
    vocab = {token: index for index, token in enumerate(tokens)}
    specials = ["<|endoftext|>", "<|im_end|>", "<think>"]
    plain = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added = [
        plain | {"id": len(tokens) + index, "content": content, "special": content != "<think>"}
        for index, content in enumerate(specials)
    ]
    assert len(tokens) + len(added) <= size
    return {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {
                    "type": "Split",
                    "pattern": {"Regex": QWEN35_SPLIT},
                    "behavior": "Isolated",
                    "invert": False,
                },
                {
                    "type": "ByteLevel",
                    "add_prefix_space": False,
                    "trim_offsets": False,
                    "use_regex": False,
                },
            ],
        },
        "model": {"type": "BPE", "vocab": vocab, "merges": words},
    }
