"""The way back: a `dflash` GGUF file as a Hugging Face drafter checkpoint, for tests only.

Shares no code with the converter.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
from models.convert.hf_build import write_safetensors

from specla.models.gguf import GgufFile

_LAYER = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_WHOLE = {
    "fc": "fc",
    "enc.output_norm": "hidden_norm",
    "output_norm": "norm",
    "markov_w1": "markov_head.markov_w1",
    "markov_w2": "markov_head.markov_w2",
    "conf_proj": "confidence_head.proj",
}


def hf_tensors(gguf: GgufFile) -> dict[str, np.ndarray]:
    found = {}
    for name, source in gguf.tensors.items():
        stem, suffix = name.rsplit(".", 1)
        layer = re.fullmatch(r"blk\.(\d+)\.(\w+)", stem)
        hf = f"layers.{layer[1]}.{_LAYER[layer[2]]}" if layer else _WHOLE[stem]
        found[f"{hf}.{suffix}"] = source.to_float32()
    return found


def hf_config(gguf: GgufFile, nested: bool) -> dict[str, Any]:
    def key(name: str) -> Any:
        return gguf.metadata.get(f"dflash.{name}")

    is_dspark = "markov_w1.weight" in gguf.tensors
    own = {
        "block_size": key("block_size"),
        "mask_token_id": gguf.metadata["tokenizer.ggml.mask_token_id"],
        "target_layer_ids": [layer - 1 for layer in key("target_layers")],
    }
    config: dict[str, Any] = {
        "architectures": ["Qwen3DSparkModel" if is_dspark else "DFlashDraftModel"],
        "model_type": "qwen3",
        "num_hidden_layers": key("block_count"),
        "hidden_size": key("embedding_length"),
        "intermediate_size": key("feed_forward_length"),
        "num_attention_heads": key("attention.head_count"),
        "num_key_value_heads": key("attention.head_count_kv"),
        "head_dim": key("attention.key_length"),
        "max_position_embeddings": key("context_length"),
        "rms_norm_eps": 1e-6,
        "rope_theta": key("rope.freq_base"),
        "vocab_size": gguf.metadata.count("tokenizer.ggml.tokens"),
        **({"dflash_config": own} if nested else own),
    }
    if key("attention.sliding_window"):
        config["use_sliding_window"] = True
        config["sliding_window"] = key("attention.sliding_window")
        config["layer_types"] = [
            "sliding_attention" if slides else "full_attention"
            for slides in key("attention.sliding_window_pattern")
        ]
    if key("sample_from_anchor") is not None:
        config["sample_from_anchor"] = key("sample_from_anchor")
    return config


def write_hf(gguf: GgufFile, folder: Path, nested: bool) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(hf_config(gguf, nested)))
    write_safetensors(folder / "model.safetensors", hf_tensors(gguf))
    return folder
