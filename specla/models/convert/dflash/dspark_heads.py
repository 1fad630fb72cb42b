"""DSpark heads of a drafter: among its own tensors or in a side file, under any published name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np

from specla.errors import OptionError
from specla.models.convert.safetensors import SafeTensor, read_safetensors
from specla.models.convert.torch_file import float_tensor, read_torch_file
from specla.models.gguf.text import fail, quoted, shown_path

SIDE_FILES = ("dflash_aux_heads.safetensors", "dflash_aux_heads.pt")
W1, W2 = "markov_w1.weight", "markov_w2.weight"
CONFIDENCE, BIAS = "conf_proj.weight", "conf_proj.bias"
# an export may number the stage, prefix the library's name, or wrap the model
_PREFIX = re.compile(r"(model\.)?(mtp\.\d+\.)?(dspark_)?")
_NAMES = {
    "markov_head.markov_w1.weight": W1,
    "markov_w1.weight": W1,
    "markov_head.markov_w2.weight": W2,
    "markov_w2.weight": W2,
    "confidence_head.proj.weight": CONFIDENCE,
    "confidence_head.weight": CONFIDENCE,
    "confidence_proj.weight": CONFIDENCE,
    "confidence_head.proj.bias": BIAS,
    "confidence_head.bias": BIAS,
    "confidence_proj.bias": BIAS,
}


@dataclass(frozen=True)
class DsparkHeads:
    """tensors: GGUF name -> tensor; empty without heads.  inline: among the drafter's own."""

    tensors: dict[str, SafeTensor] = field(default_factory=dict)
    inline: bool = True

    def __bool__(self) -> bool:
        return bool(self.tensors)

    @property
    def rank(self) -> int:
        """Rank of the Markov head."""
        return self.tensors[W1].shape[-1]


def head_name(name: str) -> str | None:
    """GGUF name of a checkpoint's head tensor, None for any other tensor."""
    start = _PREFIX.match(name)
    return _NAMES.get(name[start.end() :]) if start else None


def find_heads(
    folder: Path,
    tensors: Mapping[str, SafeTensor],
    wanted: Path | Literal["auto"] | None,
    notes: list[str],
) -> DsparkHeads:
    """The heads to convert.

    tensors: the drafter's own, by their names in the checkpoint.  wanted: a side file, "auto" for
    the drafter's own heads or else a side file of a usual name, None for none at all.
    """
    own = _by_gguf_name(tensors)
    if wanted is None:
        if own:
            notes.append(f"left out {len(own)} tensors of the DSpark heads")
        return DsparkHeads()
    if wanted == "auto":
        side = next((folder / name for name in SIDE_FILES if (folder / name).exists()), None)
        if own and side is not None:
            notes.append(f"{side.name} was not read: the checkpoint holds DSpark heads itself")
        if own or side is None:
            return DsparkHeads(own)
        wanted = side
    elif own:
        notes.append(f"the checkpoint's own DSpark heads were replaced by {wanted.name}'s")
    return DsparkHeads(_side_file(wanted, notes), inline=False)


def _by_gguf_name(tensors: Mapping[str, SafeTensor]) -> dict[str, SafeTensor]:
    found: dict[str, SafeTensor] = {}
    for name, tensor in tensors.items():
        target = head_name(name)
        if target is None:
            continue
        if target in found:
            fail(tensor.path, f"{quoted(name)} and {quoted(found[target].name)} are the same head")
        found[target] = tensor
    return found


def _side_file(path: Path, notes: list[str]) -> dict[str, SafeTensor]:
    if not path.exists():
        raise OptionError(f"{shown_path(path)}: no such file; name a file with DSpark heads")
    if path.suffix not in (".safetensors", ".pt"):
        raise OptionError(f"{shown_path(path)}: a .safetensors or .pt file is needed")
    read = read_safetensors if path.suffix == ".safetensors" else read_torch_file
    tensors = read(path)
    found = _by_gguf_name(tensors)
    if not found:
        fail(path, f"holds no DSpark head among its {len(tensors)} tensors; name another file")
    if len(found) < len(tensors):
        notes.append(
            f"left out {len(tensors) - len(found)} tensors of {path.name} that are no DSpark heads"
        )
    return found


def checked_heads(
    heads: DsparkHeads, d_model: int, vocab: int, draft_vocab: int, stated_rank: int | None,
    notes: list[str],
) -> DsparkHeads:  # fmt: skip
    """The heads in their GGUF shapes.

    markov_w1 [vocab, rank], markov_w2 [draft_vocab, rank], conf_proj [1, d_model + rank] and its
    bias [1] (zero when missing). Raises FileFormatError when they belong to another model.
    """
    if not heads:
        return heads
    tensors = dict(heads.tensors)
    for name in (W1, W2):
        if name not in tensors:
            path = next(iter(tensors.values())).path
            fail(path, f"the Markov head is incomplete: {name.split('.')[0]} is missing")
    first = tensors[W1]
    for name, rows, key in ((W1, vocab, "vocab_size"), (W2, draft_vocab, "the draft vocabulary")):
        shape = tensors[name].shape
        if len(shape) != 2 or shape[0] != rows or shape[1] != first.shape[-1] or not shape[1]:
            _misfit(tensors[name], f"[{rows}, {first.shape[-1]}] is needed, {key} being {rows}")
    if stated_rank is not None and stated_rank != heads.rank:
        _misfit(first, f"markov_rank is {stated_rank}")
    confidence = tensors.pop(CONFIDENCE, None)
    bias = tensors.pop(BIAS, None)
    if confidence is not None:
        tensors[CONFIDENCE] = _confidence(confidence, d_model, heads.rank, notes)
        tensors[BIAS] = _bias(bias, confidence, notes)
    elif bias is not None:
        fail(bias.path, f"tensor {bias.name} is there, but not the weight of that head")
    return DsparkHeads(tensors, heads.inline)


def _confidence(tensor: SafeTensor, d_model: int, rank: int, notes: list[str]) -> SafeTensor:
    shape = tensor.shape[1:] if len(tensor.shape) == 2 and tensor.shape[0] == 1 else tensor.shape
    if shape not in ((d_model,), (d_model + rank,)):
        _misfit(tensor, f"[1, {d_model + rank}] is needed (hidden_size + markov_rank)")
    width = shape[0]
    values = tensor.matrix(width).take(slice(0, 1))
    if width == d_model:
        notes.append("the confidence head reads the hidden state only; its Markov part is zeros")
        values = np.concatenate([values, np.zeros((1, rank), dtype=np.float32)], axis=1)
    return float_tensor(tensor.name, values, tensor.path)


def _bias(tensor: SafeTensor | None, weight: SafeTensor, notes: list[str]) -> SafeTensor:
    if tensor is None:
        notes.append("the confidence head has no bias; zero was written")
        return float_tensor(f"{weight.name} (bias)", np.zeros(1, dtype=np.float32), weight.path)
    if tensor.shape not in ((), (1,)):
        _misfit(tensor, "[1] is needed")
    return SafeTensor(tensor.name, tensor.dtype, (1,), tensor.raw, tensor.path)


def _misfit(tensor: SafeTensor, wanted: str) -> None:
    shape = quoted(list(tensor.shape))
    fail(tensor.path, f"tensor {tensor.name} has the shape {shape}; {wanted}")
