"""Random drafter checkpoints in the published layouts, and what their GGUF files must hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
from models.convert import hf_build as build

from specla.models.convert import convert_checkpoint
from specla.models.gguf import GgufFile

WIDTH, VOCAB, RANK, LAYERS, CAPTURED = 64, 96, 8, 2, [1, 3, 6]
HEADS, KV_HEADS, HEAD_DIM, INNER = 4, 2, 16, 72

_SIZES = {
    "hidden_size": WIDTH,
    "intermediate_size": INNER,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": KV_HEADS,
    "head_dim": HEAD_DIM,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
    "hidden_act": "silu",
    "attention_bias": False,
    "vocab_size": VOCAB,
}


def nested(architecture: str = "DFlashDraftModel", **changes: Any) -> dict[str, Any]:
    """`dflash_config` holds what is the drafter's own. `dflash__KEY` changes a nested key."""
    own = {"mask_token_id": 90, "block_size": 8, "target_layer_ids": CAPTURED}
    found = _SIZES | {
        "architectures": [architecture],
        "model_type": "qwen3",
        "num_target_layers": 8,
    }
    for key, value in changes.items():
        holder = own if key.startswith("dflash__") else found
        holder[key.removeprefix("dflash__")] = value
    return found | {"dflash_config": own}


def flat(architecture: str = "Qwen3DSparkModel", **changes: Any) -> dict[str, Any]:
    """Everything at the top level, and the older RoPE keys."""
    found = nested(architecture)
    found |= found.pop("dflash_config")
    found |= {"rope_theta": found.pop("rope_parameters")["rope_theta"], "rope_scaling": None}
    return found | changes


def speculators(**changes: Any) -> dict[str, Any]:
    """Sizes in `transformer_layer_config`, captured layers counted from one."""
    return {
        "architectures": ["DSparkDraftModel"],
        "model_type": "qwen3",
        "speculators_model_type": "dspark",
        "transformer_layer_config": dict(_SIZES),
        "block_size": 8,
        "mask_token_id": 90,
        "aux_hidden_state_layer_ids": [layer + 1 for layer in CAPTURED],
    } | changes


def shapes(n_captured: int = len(CAPTURED), layers: int = LAYERS) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "fc.weight": (WIDTH, n_captured * WIDTH),
        "hidden_norm.weight": (WIDTH,),
        "norm.weight": (WIDTH,),
    }
    for layer in range(layers):
        for name, shape in {
            "input_layernorm.weight": (WIDTH,),
            "post_attention_layernorm.weight": (WIDTH,),
            "self_attn.q_proj.weight": (HEADS * HEAD_DIM, WIDTH),
            "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            "self_attn.o_proj.weight": (WIDTH, HEADS * HEAD_DIM),
            "self_attn.q_norm.weight": (HEAD_DIM,),
            "self_attn.k_norm.weight": (HEAD_DIM,),
            "mlp.gate_proj.weight": (INNER, WIDTH),
            "mlp.up_proj.weight": (INNER, WIDTH),
            "mlp.down_proj.weight": (WIDTH, INNER),
        }.items():
            found[f"layers.{layer}.{name}"] = shape
    return found


def markov_shapes(draft_vocab: int = VOCAB, prefix: str = "markov_head.") -> dict[str, Any]:
    return {
        f"{prefix}markov_w1.weight": (VOCAB, RANK),
        f"{prefix}markov_w2.weight": (draft_vocab, RANK),
    }


def confidence_shapes(bias: bool = True) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"confidence_head.proj.weight": (1, WIDTH + RANK)}
    return found | ({"confidence_head.proj.bias": (1,)} if bias else {})


CONV, GROUP, SELECTOR_RANK, TOP_K = 3, 16, 8, 4


def dflash2_shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {
        "candidate_selector.predecessor_codebook": (VOCAB, SELECTOR_RANK),
        "candidate_selector.successor_codebook": (VOCAB, SELECTOR_RANK),
        "candidate_selector.hidden_projection.weight": (SELECTOR_RANK, WIDTH),
    }
    for layer in range(LAYERS):
        for side in ("attention_conv", "mlp_conv"):
            name = f"layers.{layer}.{side}"
            found[f"{name}.base_kernel"] = (2, CONV, WIDTH)
            found[f"{name}.kernel_projection.weight"] = (2 * CONV * WIDTH // GROUP, WIDTH)
    return found


def dflash2_config(**changes: Any) -> dict[str, Any]:
    return nested(
        "DFlash2DraftModel",
        dflash__conv_kernel_size=CONV,
        dflash__conv_group_size=GROUP,
        dflash__selector_rank=SELECTOR_RANK,
        dflash__selector_top_k=TOP_K,
        **changes,
    )


def arrays(*groups: dict[str, tuple[int, ...]], seed: int = 0) -> dict[str, np.ndarray]:
    """Random values that every float type of a checkpoint holds exactly."""
    rng = np.random.default_rng(seed)
    return {
        name: (rng.integers(-127, 128, shape) / 64).astype(np.float32)
        for group in groups
        for name, shape in group.items()
    }


# checkpoint name -> GGUF name, spelled out once more so that it can disagree with the converter
_NAMES = {
    r"fc\.weight": "fc.weight",
    r"hidden_norm\.weight": "enc.output_norm.weight",
    r"norm\.weight": "output_norm.weight",
    r"embed_tokens\.weight": "token_embd.weight",
    r"lm_head\.weight": "output.weight",
    r"layers\.(\d+)\.input_layernorm\.weight": r"blk.\1.attn_norm.weight",
    r"layers\.(\d+)\.post_attention_layernorm\.weight": r"blk.\1.ffn_norm.weight",
    r"layers\.(\d+)\.self_attn\.([qkv])_proj\.weight": r"blk.\1.attn_\2.weight",
    r"layers\.(\d+)\.self_attn\.o_proj\.weight": r"blk.\1.attn_output.weight",
    r"layers\.(\d+)\.self_attn\.([qk])_norm\.weight": r"blk.\1.attn_\2_norm.weight",
    r"layers\.(\d+)\.self_attn\.sinks": r"blk.\1.attn_sinks.weight",
    r"layers\.(\d+)\.mlp\.(gate|up|down)_proj\.weight": r"blk.\1.ffn_\2.weight",
    r"layers\.(\d+)\.attention_conv\.base_kernel": r"blk.\1.attn_conv_base",
    r"layers\.(\d+)\.attention_conv\.kernel_projection\.weight": r"blk.\1.attn_conv_proj.weight",
    r"layers\.(\d+)\.mlp_conv\.base_kernel": r"blk.\1.ffn_conv_base",
    r"layers\.(\d+)\.mlp_conv\.kernel_projection\.weight": r"blk.\1.ffn_conv_proj.weight",
    r"candidate_selector\.(predecessor|successor)_codebook": r"selector_\1.weight",
    r"candidate_selector\.hidden_projection\.weight": "selector_hidden.weight",
    r"markov_head\.markov_w([12])\.weight": r"markov_w\1.weight",
    r"confidence_head\.proj\.(weight|bias)": r"conf_proj.\1",
}


def expected(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """GGUF name -> values, for tensors under their usual names."""
    found = {}
    for name, values in tensors.items():
        (target,) = {
            re.sub(pattern, stored, name)
            for pattern, stored in _NAMES.items()
            if re.fullmatch(pattern, name)
        }
        found[target] = values
    return found


def checkpoint(
    folder: Path, c: dict[str, Any], tensors: dict[str, np.ndarray], **kwargs: Any
) -> Path:
    return build.write_checkpoint(folder / "hf", c, tensors, **kwargs)


def converted(
    tmp_path: Path,
    c: dict[str, Any],
    tensors: dict[str, np.ndarray],
    outtype: str = "f32",
    write: dict[str, Any] | None = None,
    **kwargs: Any,
) -> tuple[GgufFile, tuple[str, ...]]:
    """(the file, the notes) of a conversion. write: for the checkpoint; kwargs: for the call."""
    folder = checkpoint(tmp_path, c, tensors, **(write or {}))
    kwargs.setdefault("overwrite", True)
    done = convert_checkpoint(folder, tmp_path / "d.gguf", outtype, **kwargs)
    return GgufFile.open(done.path), done.notes
