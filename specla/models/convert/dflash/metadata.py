"""Metadata of a `dflash` GGUF file, but for its tokenizer."""

from __future__ import annotations

from specla.models.convert.dflash.config import DrafterConfig
from specla.models.gguf.write import Value

ARCHITECTURE = "dflash"


def drafter_metadata(
    config: DrafterConfig,
    name: str,
    file_type: int,
    sample_from_anchor: bool | None,
    has_confidence_head: bool | None,
    multi_axis_rope: bool,
) -> dict[str, Value]:
    """Keys of a drafter.

    file_type: `general.file_type`, as llama.cpp numbers it.
    sample_from_anchor, has_confidence_head: None for a plain DFlash drafter.
    multi_axis_rope: whether the target's RoPE has several axes; the drafter then turns on the
    first one, which for text is the same as plain RoPE.
    """
    keys = {
        "block_count": Value("u32", config.n_layers),
        "context_length": Value("u32", config.context_length),
        "embedding_length": Value("u32", config.d_model),
        "feed_forward_length": Value("u32", config.d_ff),
        "attention.head_count": Value("u32", config.n_heads),
        "attention.head_count_kv": Value("u32", config.n_kv_heads),
        "attention.layer_norm_rms_epsilon": Value("f32", config.rms_eps),
        "attention.key_length": Value("u32", config.head_dim),
        "attention.value_length": Value("u32", config.head_dim),
        **{f"rope.{key}": value for key, value in config.rope.items()},
        "block_size": Value("u32", config.block_size),
        # the index of the layer that would read the captured value
        "target_layers": Value("i32", [layer + 1 for layer in config.captured]),
        **config.factors,
    }
    if config.rotary_dim != config.head_dim:
        keys["rope.dimension_count"] = Value("u32", config.rotary_dim)
    if config.causal is not None:
        keys["attention.causal"] = Value("bool", config.causal)
    if config.window is not None:
        keys["attention.sliding_window"] = Value("u32", config.window.size)
        keys["attention.sliding_window_pattern"] = Value("bool", list(config.window.pattern))
    if multi_axis_rope:
        keys["rope.dimension_sections"] = Value("i32", [config.rotary_dim // 2, 0, 0, 0])
    if config.dflash2 is not None:
        keys |= {
            "conv_kernel_size": Value("u32", config.dflash2.conv_kernel),
            "conv_group_size": Value("u32", config.dflash2.conv_group),
            "selector_rank": Value("u32", config.dflash2.rank),
            "selector_top_k": Value("u32", config.dflash2.top_k),
        }
    if sample_from_anchor is not None:
        keys["sample_from_anchor"] = Value("bool", sample_from_anchor)
    if has_confidence_head is not None:
        keys["has_confidence_head"] = Value("bool", has_confidence_head)
    return {
        "general.architecture": Value("str", ARCHITECTURE),
        "general.type": Value("str", "model"),
        "general.name": Value("str", name),
        "general.file_type": Value("u32", file_type),
        "general.quantization_version": Value("u32", 2),
        **{f"{ARCHITECTURE}.{key}": value for key, value in keys.items()},
    }
