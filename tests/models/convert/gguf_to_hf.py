"""The way back: a `qwen35` GGUF file as a Hugging Face checkpoint, written for tests only.

Shares no code with the converter. Exact for F32 files, but for A_log (a logarithm).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from models.convert.hf_build import QWEN35_SPLIT, write_safetensors

from specla.models.gguf import GgufFile

QWEN2_SPLIT = QWEN35_SPLIT.replace(r"[\p{L}\p{M}]+", r"\p{L}+").replace(r"\p{L}\p{M}", r"\p{L}")


def hf_tensors(gguf: GgufFile) -> dict[str, np.ndarray]:
    """Checkpoint tensors under `model.` and `mtp.`, value heads back in groups."""
    n_key = gguf.metadata.get_int("qwen35.ssm.group_count")
    n_value = gguf.metadata.get_int("qwen35.ssm.time_step_rank")
    n_qk = 2 * n_key * gguf.metadata.get_int("qwen35.ssm.state_size")
    trunk = gguf.metadata.get_int("qwen35.block_count") - gguf.metadata.get_int(
        "qwen35.nextn_predict_layers", 0
    )

    def grouped(values: np.ndarray, axis: int = 0) -> np.ndarray:
        heads = np.split(values, n_value, axis=axis)
        ordered = [
            heads[copy * n_key + key_head]
            for key_head in range(n_key)
            for copy in range(n_value // n_key)
        ]
        return np.concatenate(ordered, axis=axis)

    names = {
        "attn_norm.weight": ("input_layernorm.weight", lambda w: w - 1),
        "post_attention_norm.weight": ("post_attention_layernorm.weight", lambda w: w - 1),
        "attn_q_norm.weight": ("self_attn.q_norm.weight", lambda w: w - 1),
        "attn_k_norm.weight": ("self_attn.k_norm.weight", lambda w: w - 1),
        "attn_q.weight": ("self_attn.q_proj.weight", None),
        "attn_k.weight": ("self_attn.k_proj.weight", None),
        "attn_v.weight": ("self_attn.v_proj.weight", None),
        "attn_output.weight": ("self_attn.o_proj.weight", None),
        "ffn_gate.weight": ("mlp.gate_proj.weight", None),
        "ffn_up.weight": ("mlp.up_proj.weight", None),
        "ffn_down.weight": ("mlp.down_proj.weight", None),
        "attn_qkv.weight": (
            "linear_attn.in_proj_qkv.weight",
            lambda w: np.concatenate([w[:n_qk], grouped(w[n_qk:])]),
        ),
        "attn_gate.weight": ("linear_attn.in_proj_z.weight", grouped),
        "ssm_alpha.weight": ("linear_attn.in_proj_a.weight", grouped),
        "ssm_beta.weight": ("linear_attn.in_proj_b.weight", grouped),
        "ssm_conv1d.weight": (
            "linear_attn.conv1d.weight",
            lambda w: np.concatenate([w[:n_qk], grouped(w[n_qk:])])[:, None],
        ),
        "ssm_a": (
            "linear_attn.A_log",
            lambda a: grouped(np.log(-a.astype(np.float64)).astype(np.float32)),
        ),
        "ssm_dt.bias": ("linear_attn.dt_bias", grouped),
        "ssm_norm.weight": ("linear_attn.norm.weight", None),
        "ssm_out.weight": ("linear_attn.out_proj.weight", lambda w: grouped(w, axis=1)),
    }  # fmt: skip
    whole = {
        "token_embd.weight": ("model.embed_tokens.weight", None),
        "output_norm.weight": ("model.norm.weight", lambda w: w - 1),
        "output.weight": ("lm_head.weight", None),
    }
    extra = {
        "nextn.eh_proj.weight": ("mtp.fc.weight", None),
        "nextn.enorm.weight": ("mtp.pre_fc_norm_embedding.weight", lambda w: w - 1),
        "nextn.hnorm.weight": ("mtp.pre_fc_norm_hidden.weight", lambda w: w - 1),
        "nextn.shared_head_norm.weight": ("mtp.norm.weight", lambda w: w - 1),
    }
    found = {}
    for name, source in gguf.tensors.items():
        values = source.to_float32()
        if name in whole:
            target, change = whole[name]
        else:
            _, layer, part = name.split(".", 2)
            if part in extra:
                target, change = extra[part]
            else:
                target, change = names[part]
                prefix = f"model.layers.{layer}" if int(layer) < trunk else "mtp.layers.0"
                target = f"{prefix}.{target}"
        found[target] = values if change is None else change(values)
    return found


def hf_config(gguf: GgufFile) -> dict[str, Any]:
    keys = gguf.metadata

    def size(name: str, default: int | None = None) -> int:
        if default is None:
            return keys.get_int(f"qwen35.{name}")
        return keys.get_int(f"qwen35.{name}", default)

    n_mtp = size("nextn_predict_layers", 0)
    recurrent = keys.get_bools("qwen35.attention.recurrent_layers")
    trunk = size("block_count") - n_mtp
    return {
        "architectures": ["Qwen3_5ForCausalLM"],
        "model_type": "qwen3_5_text",
        "dtype": "float32",
        "vocab_size": gguf.tensor("token_embd.weight").shape[0],
        "hidden_size": size("embedding_length"),
        "intermediate_size": size("feed_forward_length"),
        "num_hidden_layers": trunk,
        "mtp_num_hidden_layers": n_mtp,
        "num_attention_heads": size("attention.head_count"),
        "num_key_value_heads": size("attention.head_count_kv"),
        "head_dim": size("attention.key_length"),
        "linear_num_key_heads": size("ssm.group_count"),
        "linear_num_value_heads": size("ssm.time_step_rank"),
        "linear_key_head_dim": size("ssm.state_size"),
        "linear_value_head_dim": size("ssm.inner_size") // size("ssm.time_step_rank"),
        "linear_conv_kernel_dim": size("ssm.conv_kernel"),
        "max_position_embeddings": size("context_length"),
        "rms_norm_eps": 1e-6,
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "eos_token_id": keys.get_int("tokenizer.ggml.eos_token_id"),
        "pad_token_id": keys.get_int("tokenizer.ggml.padding_token_id"),
        "layer_types": [
            "linear_attention" if is_recurrent else "full_attention"
            for is_recurrent in recurrent[:trunk]
        ],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": keys.get_float("qwen35.rope.freq_base"),
            "partial_rotary_factor": size("rope.dimension_count") / size("attention.key_length"),
            "mrope_section": keys.get_ints("qwen35.rope.dimension_sections")[:3],
            "mrope_interleaved": True,
        },
    }


def hf_tokenizer(gguf: GgufFile) -> dict[str, Any]:
    tokens = gguf.metadata.get_strs("tokenizer.ggml.tokens")
    types = gguf.metadata.get_ints("tokenizer.ggml.token_type")
    return {
        "added_tokens": [
            {"id": index, "content": token, "special": True}
            for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind == 3
        ],
        "pre_tokenizer": {"type": "Split", "pattern": {"Regex": QWEN2_SPLIT}},
        "model": {
            "type": "BPE",
            "vocab": {
                token: index
                for index, (token, kind) in enumerate(zip(tokens, types, strict=True))
                if kind != 5
            },
            "merges": gguf.metadata.get_strs("tokenizer.ggml.merges"),
        },
    }


def write_hf(gguf: GgufFile, folder: Path) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(hf_config(gguf)))
    (folder / "tokenizer.json").write_text(json.dumps(hf_tokenizer(gguf)))
    write_safetensors(folder / "model.safetensors", hf_tensors(gguf))
    return folder
