"""Small real files: the bundled model and drafter, cut to one head, 32 columns and few tokens.

Every block of weights in them is one of the bundled files' own; only the shapes are smaller, so
that a mutation has a chance to hit something that matters.
"""

from __future__ import annotations

import io
from collections.abc import Iterator
from functools import cache
from typing import Any

from specla.models.gguf import GgufFile, TensorSource
from specla.models.gguf.write import TensorToWrite, Value, write_gguf
from specla.models.load import bundled_drafter, bundled_model
from specla.models.tokenizer.bytelevel import BYTE_LETTERS

WIDTH = 32
_MERGES = ["h e", "l l", "he ll"]
_TOKENS = [*BYTE_LETTERS, "he", "ll", "hell", "<|im_start|>", "<|im_end|>", "<|endoftext|>"]
_TYPES = [1] * (len(_TOKENS) - 3) + [3] * 3
TEMPLATE = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' + m.content|trim "
    "+ '<|im_end|>\\n' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>' }}{% endif %}"
)


def tokenizer_keys() -> dict[str, Value]:
    end = len(_TOKENS) - 1
    return {
        "tokenizer.ggml.model": Value("str", "gpt2"),
        "tokenizer.ggml.pre": Value("str", "qwen35"),
        "tokenizer.ggml.tokens": Value("str", _TOKENS),
        "tokenizer.ggml.token_type": Value("i32", _TYPES),
        "tokenizer.ggml.merges": Value("str", _MERGES),
        "tokenizer.ggml.add_bos_token": Value("bool", False),
        "tokenizer.ggml.eos_token_id": Value("u32", end),
        "tokenizer.ggml.padding_token_id": Value("u32", end),
        "tokenizer.ggml.mask_token_id": Value("u32", end),
        "tokenizer.chat_template": Value("str", TEMPLATE),
    }


@cache
def target(*, mtp: bool = False) -> bytes:
    """A target of one Gated-DeltaNet and one attention layer, with an extra prediction layer after
    them if asked for: about 30 kB."""
    full = GgufFile.open(bundled_model())
    keys = _numbers(
        "qwen35",
        block_count=3 if mtp else 2,
        context_length=64,
        embedding_length=WIDTH,
        feed_forward_length=32,
        **{
            "attention.head_count": 1,
            "attention.head_count_kv": 1,
            "attention.key_length": 32,
            "attention.value_length": 32,
            "rope.dimension_count": 16,
            "ssm.conv_kernel": 4,
            "ssm.state_size": 32,
            "ssm.group_count": 1,
            "ssm.time_step_rank": 1,
            "ssm.inner_size": 32,
            "full_attention_interval": 2,
        },
    )
    if mtp:
        keys["qwen35.nextn_predict_layers"] = Value("u32", 1)
    keys["qwen35.attention.layer_norm_rms_epsilon"] = Value("f32", 1e-6)
    keys["qwen35.rope.freq_base"] = Value("f32", 1e6)
    tensors = [_cut(full, "token_embd.weight", len(_TOKENS), WIDTH)]
    tensors += [_cut(full, "output_norm.weight", 1, WIDTH)]
    tensors += _block(full, 0, 0, _GDN) + _block(full, 3, 1, _ATTENTION)
    if mtp:
        tensors += _block(full, 7, 2, _ATTENTION)
        fc = _cut(full, "blk.3.ffn_up.weight", 32, 64)
        tensors.append(_renamed(fc, "blk.2.nextn.eh_proj.weight"))
        for name in ("enorm", "hnorm"):
            norm = _cut(full, "output_norm.weight", 1, WIDTH)
            tensors.append(_renamed(norm, f"blk.2.nextn.{name}.weight"))
    return _written({**_general("qwen35"), **keys, **tokenizer_keys()}, tensors)


@cache
def drafter() -> bytes:
    """A drafter for :func:`target`: one layer, two captured ones, all heads. About 30 kB."""
    full = GgufFile.open(bundled_drafter())
    keys = _numbers(
        "dflash",
        block_count=1,
        context_length=64,
        embedding_length=WIDTH,
        feed_forward_length=32,
        block_size=4,
        **{
            "attention.head_count": 1,
            "attention.head_count_kv": 1,
            "attention.key_length": 32,
            "attention.value_length": 32,
        },
    )
    keys["dflash.attention.layer_norm_rms_epsilon"] = Value("f32", 1e-6)
    keys["dflash.rope.freq_base"] = Value("f32", 1e4)
    keys["dflash.target_layers"] = Value("i32", [1, 2])
    for flag in ("attention.causal", "sample_from_anchor", "has_confidence_head"):
        keys[f"dflash.{flag}"] = Value("bool", True)
    tensors = [_cut(full, "fc.weight", WIDTH, 2 * WIDTH)]
    for name in ("enc.output_norm.weight", "output_norm.weight"):
        tensors.append(_cut(full, name, 1, WIDTH))
    tensors += _block(full, 0, 0, _DRAFT)
    for name in ("markov_w1.weight", "markov_w2.weight"):
        tensors.append(_cut(full, name, len(_TOKENS), 32))
    tensors.append(_cut(full, "conf_proj.weight", 1, WIDTH + 32))
    tensors.append(_cut(full, "conf_proj.bias", 1, 1))
    return _written({**_general("dflash"), **keys, **tokenizer_keys()}, tensors)


@cache
def vocabulary() -> bytes:
    """Metadata of a tokenizer and nothing else."""
    return _written({**_general("qwen35"), **tokenizer_keys()}, [])


_FFN = {"attn_norm.weight": 1, "ffn_gate.weight": 32, "ffn_up.weight": 32, "ffn_down.weight": 32}
_GDN = {
    **_FFN,
    "post_attention_norm.weight": 1,
    "attn_qkv.weight": 96,
    "attn_gate.weight": 32,
    "ssm_alpha.weight": 1,
    "ssm_beta.weight": 1,
    "ssm_conv1d.weight": 96,
    "ssm_a": 1,
    "ssm_dt.bias": 1,
    "ssm_norm.weight": 1,
    "ssm_out.weight": 32,
}
_HEADS = {
    "attn_k.weight": 32,
    "attn_v.weight": 32,
    "attn_output.weight": 32,
    "attn_q_norm.weight": 1,
    "attn_k_norm.weight": 1,
}
_ATTENTION = {**_FFN, **_HEADS, "attn_q.weight": 64, "post_attention_norm.weight": 1}
_DRAFT = {**_FFN, **_HEADS, "attn_q.weight": 32, "ffn_norm.weight": 1}
_COLS = {"ssm_conv1d.weight": 4, "ssm_a": 1, "ssm_dt.bias": 1}


def _block(full: GgufFile, source: int, number: int, rows: dict[str, int]) -> list[TensorToWrite]:
    cut = []
    for name, count in rows.items():
        tensor = _cut(full, f"blk.{source}.{name}", count, _COLS.get(name, WIDTH))
        cut.append(_renamed(tensor, f"blk.{number}.{name}"))
    return cut


def _cut(full: GgufFile, name: str, rows: int, cols: int) -> TensorToWrite:
    """The first rows and columns of a tensor, blocks as they are."""
    source: TensorSource = full.tensor(name)
    row_bytes = source.n_bytes * cols // source.n_elements
    data = source.by_rows()[:rows, :row_bytes].tobytes()
    shape = (cols,) if len(source.shape) == 1 else (rows, cols)

    def chunks() -> Iterator[bytes]:
        yield data

    return TensorToWrite(name, source.kind, shape, chunks)


def _renamed(tensor: TensorToWrite, name: str) -> TensorToWrite:
    return TensorToWrite(name, tensor.kind, tensor.shape, tensor.chunks)


def _general(architecture: str) -> dict[str, Value]:
    return {
        "general.architecture": Value("str", architecture),
        "general.type": Value("str", "model"),
        "general.name": Value("str", "cut"),
    }


def _numbers(prefix: str, **values: Any) -> dict[str, Value]:
    return {f"{prefix}.{name}": Value("u32", value) for name, value in values.items()}


def _written(metadata: dict[str, Value], tensors: list[TensorToWrite]) -> bytes:
    file = io.BytesIO()
    write_gguf(file, metadata, tensors)
    return file.getvalue()
