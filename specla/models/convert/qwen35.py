"""`convert_qwen35`: a Hugging Face Qwen3.5 text checkpoint to one `qwen35` GGUF file."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from specla.models.convert.encode import FILE_TYPES, kind_for, to_write
from specla.models.convert.hf_config import HfConfig, read_hf_config
from specla.models.convert.output import (
    Conversion,
    Progress,
    Request,
    check_request,
    count_kinds,
    silent,
    write_model,
)
from specla.models.convert.plan import Move, mtp_moves, trunk_moves
from specla.models.convert.safetensors import SafeTensor, open_checkpoint
from specla.models.convert.tokenizer import tokenizer_metadata
from specla.models.gguf import GgufFile
from specla.models.gguf.text import fail, quoted
from specla.models.gguf.write import Value
from specla.models.qwen35.config import ARCHITECTURE, Qwen35Config, read_config
from specla.models.qwen35.weights import read_weights

# prefix of the text model, name of the output matrix
_PREFIXES = (
    ("model.language_model.", "lm_head.weight"),
    ("language_model.model.", "language_model.lm_head.weight"),
    ("model.", "lm_head.weight"),
    ("", "lm_head.weight"),
)
# parts of multimodal checkpoints that a text model doesn't need
_SKIPPED = ("model.visual.", "visual.")


@dataclass(frozen=True)
class TargetConversion(Conversion):
    """A written target. config: as read back from the file."""

    config: Qwen35Config


def convert_qwen35(
    source_folder: str | os.PathLike[str],
    output_path: str | os.PathLike[str],
    outtype: str = "q8_0",
    *,
    tokenizer: Literal["auto"] | None = "auto",
    pre: str | None = None,
    mtp: bool = True,
    name: str | None = None,
    overwrite: bool = False,
    progress: Progress = silent,
) -> TargetConversion:
    """Convert a checkpoint folder (config.json, safetensors, tokenizer.json) to a GGUF file.

    outtype: "f32", "f16", "bf16", "q8_0" or "q4_0", the type of the matrices; norms, convolution
    and per-head vectors stay F32, matrices whose rows don't fill blocks of 32 become F16.
    tokenizer: None writes a model without one.  pre: name of the pre-tokeniser, if the checkpoint's
    isn't recognised.  mtp: write the extra prediction layer when the checkpoint has it.
    progress: called with (tensor bytes written, in all).
    The output appears under its name complete or not at all. Raises FileFormatError,
    UnsupportedModelError or OptionError, one line each.
    """
    request = Request(
        Path(source_folder),
        Path(output_path),
        outtype,
        tokenizer is not None,
        pre,
        name,
        overwrite,
        mtp,
        progress=progress,
    )
    check_request(request)
    return convert_target(request)


def convert_target(request: Request) -> TargetConversion:
    """`convert_qwen35` for a request that was checked."""
    folder, outtype = request.folder, request.outtype
    hf = read_hf_config(folder, request.model_name or ARCHITECTURE)
    tensors = open_checkpoint(folder)
    moves, sources, notes = _planned(folder, hf.config, tensors, request.mtp)
    hf = replace(hf, config=replace(hf.config, n_mtp_layers=_n_mtp(moves, hf.config)))
    metadata = model_metadata(hf, FILE_TYPES[outtype])
    if request.tokenizer:
        metadata |= tokenizer_metadata(folder, hf.tokens, request.pre)
    else:
        metadata |= _eos_without_tokenizer(hf)
    planned = [to_write(move, sources[move.source], kind_for(move, outtype)) for move in moves]
    size, config = write_model(request, metadata, planned, _read_back)
    return TargetConversion(
        request.output, len(planned), size, count_kinds(planned), tuple(notes), config
    )


def _planned(
    folder: Path, config: Qwen35Config, tensors: dict[str, SafeTensor], mtp: bool
) -> tuple[list[Move], dict[str, SafeTensor], list[str]]:
    """The moves, their sources by `Move.source`, and notes. Every tensor is accounted for."""
    prefix, head = _prefix(folder, tensors)
    notes: list[str] = []
    moves = trunk_moves(config)
    names = {move.source: prefix + move.source for move in moves}
    if _untied(folder, config, tensors, prefix, head):
        moves.append(Move(head, "output.weight", (config.vocab_size, config.d_model)))
        names[head] = head
    mtp_names = [name for name in tensors if name.startswith("mtp.")]
    if mtp_names and mtp:
        extra = mtp_moves(config)
        moves += extra
        names |= {move.source: move.source for move in extra}
    elif mtp_names:
        notes.append(f"left out {len(mtp_names)} tensors of the extra prediction layer")
    elif config.n_mtp_layers:
        notes.append("the checkpoint holds no extra prediction layer, though its config names one")
    used = set(names.values()) | {head}
    skipped = [name for name in tensors if name.startswith(_SKIPPED)]
    if skipped:
        notes.append(f"left out {len(skipped)} tensors of the vision tower")
    for name in tensors:
        dropped = name.startswith(_SKIPPED) or (name.startswith("mtp.") and not mtp)
        if name not in used and not dropped:
            fail(
                tensors[name].path, f"tensor {quoted(name)} has no place in a {ARCHITECTURE} model"
            )
    missing = [name for name in names.values() if name not in tensors]
    if missing:
        fail(folder, f"tensor {missing[0]} is missing ({len(missing)} of {len(names)} are)")
    return moves, {source: tensors[name] for source, name in names.items()}, notes


def _prefix(folder: Path, tensors: dict[str, SafeTensor]) -> tuple[str, str]:
    for prefix, head in _PREFIXES:
        if f"{prefix}embed_tokens.weight" in tensors:
            return prefix, head
    fail(folder, "holds no embed_tokens.weight; it is not a Qwen3.5 text checkpoint")


def _untied(
    folder: Path, config: Qwen35Config, tensors: dict[str, SafeTensor], prefix: str, head: str
) -> bool:
    """Whether the output matrix is a tensor of its own."""
    output = tensors.get(head)
    if not config.tied_output:
        if output is None:
            fail(folder, f"tensor {head} is missing, and tie_word_embeddings is false")
        return True
    embedding = tensors[f"{prefix}embed_tokens.weight"]
    if output is not None and output.raw.tobytes() != embedding.raw.tobytes():
        fail(output.path, f"{head} differs from the embedding, but tie_word_embeddings is true")
    return False


def _n_mtp(moves: list[Move], config: Qwen35Config) -> int:
    return int(any(move.target.startswith(f"blk.{config.n_layers}.") for move in moves))


def model_metadata(hf: HfConfig, file_type: int) -> dict[str, Value]:
    """All keys but the tokenizer's. file_type: `general.file_type`, as llama.cpp numbers it."""
    config = hf.config
    n_blocks = config.n_layers + config.n_mtp_layers
    # prediction layers are full attention
    recurrent = [not full for full in config.attention_layers] + [False] * config.n_mtp_layers
    keys = {
        "block_count": Value("u32", n_blocks),
        "context_length": Value("u32", config.context_length),
        "embedding_length": Value("u32", config.d_model),
        "feed_forward_length": Value("u32", config.d_ff),
        "attention.head_count": Value("u32", config.n_heads),
        "attention.head_count_kv": Value("u32", config.n_kv_heads),
        "attention.key_length": Value("u32", config.head_dim),
        "attention.value_length": Value("u32", config.head_dim),
        "attention.layer_norm_rms_epsilon": Value("f32", config.rms_eps),
        "attention.recurrent_layers": Value("bool", recurrent),
        "rope.dimension_count": Value("u32", config.rotary_dim),
        "rope.dimension_sections": Value("i32", hf.rope_sections),
        "rope.freq_base": Value("f32", config.rope_base),
        "ssm.conv_kernel": Value("u32", config.conv_width),
        "ssm.state_size": Value("u32", config.key_dim),
        "ssm.group_count": Value("u32", config.n_key_heads),
        "ssm.time_step_rank": Value("u32", config.n_value_heads),
        "ssm.inner_size": Value("u32", config.n_value_heads * config.value_dim),
    }
    interval = _interval(config.attention_layers)
    if interval is not None:
        keys["full_attention_interval"] = Value("u32", interval)
    if config.n_mtp_layers:
        keys["nextn_predict_layers"] = Value("u32", config.n_mtp_layers)
    return {
        "general.architecture": Value("str", ARCHITECTURE),
        "general.type": Value("str", "model"),
        "general.name": Value("str", config.name),
        "general.file_type": Value("u32", file_type),
        "general.quantization_version": Value("u32", 2),
        **{f"{ARCHITECTURE}.{key}": value for key, value in keys.items()},
    }


def _interval(attention_layers: tuple[bool, ...]) -> int | None:
    """The interval of full-attention layers, when they are regular."""
    for interval in range(1, len(attention_layers) + 2):
        regular = [(layer + 1) % interval == 0 for layer in range(len(attention_layers))]
        if regular == list(attention_layers):
            return interval
    return None


def _eos_without_tokenizer(hf: HfConfig) -> dict[str, Value]:
    names = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return {
        name: Value("u32", token) for name, token in zip(names, hf.config.eos_ids, strict=False)
    }


def _read_back(gguf: GgufFile) -> Qwen35Config:
    """Read the new file as a target."""
    config = read_config(gguf)
    read_weights(gguf, config)
    return config
