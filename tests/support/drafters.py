"""Random DFlash drafters so small that a block takes milliseconds, as GGUF files in either naming.

    path = write_drafter(tmp_path / "draft.gguf", target_layers=(0, 2), rank=4)
    target = tiny_target(features=(0, 2))
    drafter = bound(path, target)

Fields of :class:`DraftSpec` shape the file; ``metadata`` and ``tensors`` override single entries
(None leaves one out). The defaults fit ``support.tiny.tiny_target``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize
from support.tiny import VOCAB

from specla.adapters.base import Needs
from specla.binding import target_info
from specla.core.proposal import SequenceView
from specla.models.dflash.drafter import DflashDrafter
from specla.models.dflash.load import open_drafter
from specla.models.gguf.write import TensorToWrite, Value, write_gguf
from specla.models.qwen35.target import Qwen35Target
from specla.models.sequence import Sequence as TargetSequence

LUCEBOX = "qwen35-dflash-draft"


@dataclass(frozen=True)
class DraftSpec:
    """What a drafter looks like.

    arch: "dflash" (llama.cpp's naming) or one of lucebox's.  target_width: d_model of the target.
    sliding: per layer, with ``window``.  rank: of a Markov head, 0 for none.  anchor: whether
    slot 0 drafts; None leaves the key out.  draft_ids: target ids of a reduced draft vocabulary,
    in the order of its rows.  dflash2: conv taps, conv group, selector rank, selector top-k.
    kind: encoding of the matrices.  rope: keys below ``rope.``.
    """

    arch: str = "dflash"
    d_model: int = 32
    target_width: int = 32
    vocab: int = VOCAB
    n_layers: int = 2
    d_ff: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 8
    target_layers: tuple[int, ...] = (0, 2)
    block: int = 6
    mask: int = VOCAB - 1
    causal: bool = False
    window: int | None = None
    sliding: tuple[bool, ...] = ()
    rank: int = 0
    confidence: bool = False
    anchor: bool | None = None
    own_embedding: bool = False
    own_output: bool = False
    draft_ids: tuple[int, ...] = ()
    dflash2: tuple[int, int, int, int] | None = None
    kind: str = "F32"
    rope: dict[str, Value] = field(default_factory=dict)

    @property
    def draft_vocab(self) -> int:
        return len(self.draft_ids) or self.vocab


def drafter_metadata(spec: DraftSpec) -> dict[str, Value]:
    """All keys of the file."""
    lucebox = spec.arch != "dflash"
    own = "dflash." if lucebox else ""
    keys = {
        "block_count": Value("u32", spec.n_layers),
        "context_length": Value("u32", 1024),
        "embedding_length": Value("u32", spec.d_model),
        "feed_forward_length": Value("u32", spec.d_ff),
        "attention.head_count": Value("u32", spec.n_heads),
        "attention.head_count_kv": Value("u32", spec.n_kv_heads),
        "attention.key_length": Value("u32", spec.head_dim),
        "attention.value_length": Value("u32", spec.head_dim),
        "attention.layer_norm_rms_epsilon": Value("f32", 1e-6),
        "rope.freq_base": Value("f32", 10000.0),
        f"{own}block_size": Value("u32", spec.block),
    } | {f"rope.{key}": value for key, value in spec.rope.items()}
    if lucebox:
        keys["dflash.target_layer_ids"] = Value("i32", list(spec.target_layers))
        keys["dflash.mask_token_id"] = Value("u32", spec.mask)
    else:
        keys["target_layers"] = Value("i32", [layer + 1 for layer in spec.target_layers])
    if spec.causal:
        keys["attention.causal"] = Value("bool", True)
    if spec.window is not None:
        keys["attention.sliding_window"] = Value("u32", spec.window)
        keys["attention.sliding_window_pattern"] = Value("bool", list(spec.sliding))
    if spec.anchor is not None:
        keys[f"{own}sample_from_anchor"] = Value("bool", spec.anchor)
    if spec.rank:
        keys[f"{own}has_confidence_head"] = Value("bool", spec.confidence)
    if spec.dflash2:
        names = ("conv_kernel_size", "conv_group_size", "selector_rank", "selector_top_k")
        keys |= {name: Value("u32", n) for name, n in zip(names, spec.dflash2, strict=True)}
    result = {"general.architecture": Value("str", spec.arch)}
    result |= {f"{spec.arch}.{key}": value for key, value in keys.items()}
    if not lucebox:
        result["tokenizer.ggml.mask_token_id"] = Value("u32", spec.mask)
    return result


def drafter_tensors(spec: DraftSpec, seed: int = 0) -> dict[str, np.ndarray]:
    """All tensors of the file as float32 [rows, cols] or [n]; ``d2t`` int64."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, cols: int, gain: float = 1.0) -> np.ndarray:
        return (rng.standard_normal((rows, cols)) * gain / np.sqrt(cols)).astype(np.float32)

    def norm(size: int, mean: float = 1.0) -> np.ndarray:
        return (mean + 0.1 * rng.standard_normal(size)).astype(np.float32)

    width, query, kv = spec.d_model, spec.n_heads * spec.head_dim, spec.n_kv_heads * spec.head_dim
    lucebox = spec.arch != "dflash"
    found = {
        "dflash.fc.weight" if lucebox else "fc.weight": matrix(
            width, len(spec.target_layers) * spec.target_width
        ),
        "dflash.hidden_norm.weight" if lucebox else "enc.output_norm.weight": norm(width),
        "output_norm.weight": norm(width),
    }
    for i in range(spec.n_layers):
        block = {
            "attn_norm": norm(width),
            "attn_q": matrix(query, width),
            "attn_k": matrix(kv, width),
            "attn_v": matrix(kv, width),
            "attn_output": matrix(width, query, 3.0),
            # sharp enough that attention looks at particular positions
            "attn_q_norm": norm(spec.head_dim, 2.0),
            "attn_k_norm": norm(spec.head_dim, 2.0),
            "ffn_norm": norm(width),
            "ffn_gate": matrix(spec.d_ff, width),
            "ffn_up": matrix(spec.d_ff, width),
            "ffn_down": matrix(width, spec.d_ff, 4.0),
        }
        found |= {f"blk.{i}.{name}.weight": values for name, values in block.items()}
    if spec.dflash2:
        taps, group, rank, _ = spec.dflash2
        for name in [f"blk.{i}.{part}" for i in range(spec.n_layers) for part in ("attn", "ffn")]:
            base = 0.5 + 0.5 * rng.standard_normal((2, taps, width))
            found[f"{name}_conv_base"] = base.astype(np.float32)
            found[f"{name}_conv_proj.weight"] = matrix(2 * taps * (width // group), width, 0.5)
        found["selector_predecessor.weight"] = matrix(spec.vocab, rank, np.sqrt(rank))
        found["selector_successor.weight"] = matrix(spec.vocab, rank, np.sqrt(rank))
        found["selector_hidden.weight"] = matrix(rank, width)
    if spec.own_embedding:
        found["token_embd.weight"] = matrix(spec.vocab, width, np.sqrt(width))
    if spec.own_output or spec.draft_ids:
        found["output.weight"] = matrix(spec.draft_vocab, width, 2.0)
    if spec.draft_ids:
        found["d2t"] = np.array(spec.draft_ids, dtype=np.int64)
    if spec.rank:
        found["markov_w1.weight"] = matrix(spec.vocab, spec.rank, np.sqrt(spec.rank))
        found["markov_w2.weight"] = matrix(spec.draft_vocab, spec.rank, 3.0)
    if spec.confidence:
        found["conf_proj.weight"] = matrix(1, width + spec.rank, 2.0)[0]
        found["conf_proj.bias"] = norm(1, 0.2)
    return found


def write_drafter(
    path: Path,
    spec: DraftSpec | None = None,
    *,
    seed: int = 0,
    metadata: dict[str, Value | None] | None = None,
    tensors: dict[str, np.ndarray | None] | None = None,
    **fields: Any,
) -> Path:
    """Write a drafter and return its path.

    metadata, tensors: entries to replace, add or (None) drop.  fields: of DraftSpec.
    """
    spec = spec if spec is not None else DraftSpec(**fields)
    keys = {**drafter_metadata(spec), **(metadata or {})}
    arrays = {**drafter_tensors(spec, seed), **(tensors or {})}
    with path.open("wb") as file:
        write_gguf(
            file,
            {key: value for key, value in keys.items() if value is not None},
            [_encoded(name, a, spec.kind) for name, a in arrays.items() if a is not None],
        )
    return path


def _encoded(name: str, values: np.ndarray, kind: str) -> TensorToWrite:
    if values.dtype == np.int64:
        return TensorToWrite(name, "I64", values.shape, lambda: iter([values.tobytes()]))
    if values.ndim != 2 or values.shape[-1] % 32:
        kind = "F32"
    data = np.ascontiguousarray(values, dtype=np.float32)
    if kind != "F32":
        data = quantize(data, GGMLQuantizationType[kind])

    def chunks() -> Iterator[bytes]:
        yield data.tobytes()

    return TensorToWrite(name, kind, values.shape, chunks)


def bound(path: Path, target: Qwen35Target, **options: Any) -> DflashDrafter:
    """The drafter of a file for a target that captures what it needs. options: block, window."""
    draft = open_drafter(path)
    info = target_info(target, Needs(features=draft.layers, parts=True))
    return draft.bind(info, **options)


def view_of(
    target: Qwen35Target, sequence: TargetSequence, tokens: Sequence[int], key: int = 0
) -> SequenceView:
    """What an adapter sees of a sequence whose state holds all of ``tokens`` but the last."""
    return SequenceView(
        key=key,
        tokens=tokens,
        prompt_length=len(tokens),
        budget=64,
        max_depth=64,
        features=lambda start, stop: target.features(sequence, start, stop),
    )


def prefilled(
    target: Qwen35Target,
    tokens: Sequence[int],
    key: int = 0,
    sequence: TargetSequence | None = None,
) -> SequenceView:
    """A fresh sequence of a target with all of ``tokens`` but the last in its state."""
    sequence = sequence if sequence is not None else target.open()
    chunk = target.options.chunk
    for start in range(0, len(tokens) - 1, chunk):
        target.prefill([(sequence, list(tokens[start : min(start + chunk, len(tokens) - 1)]))])
    return view_of(target, sequence, tokens, key)
