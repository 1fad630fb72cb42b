"""Reading safetensors checkpoints: one file or sharded, memory-mapped, without torch.

Container: 8 bytes of little-endian header length, a JSON header {name: {dtype, shape,
data_offsets}}, then the data. Format: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np

from specla.errors import FileFormatError, UnsupportedModelError
from specla.models.convert.json_file import Keys, load_json, parse_json
from specla.models.gguf.text import fail, quoted, shown_path
from specla.regular_file import open_regular

_MAX_HEADER = 100_000_000
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
          "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
          "F8_E8M0": 1}  # fmt: skip


@dataclass(frozen=True)
class SafeTensor:
    """One tensor of a checkpoint, still in its file encoding.

    dtype: safetensors name ("BF16", ...).  shape: row-major.
    raw: uint8 [n_bytes], read-only view of the file.  path: the file, for messages.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    raw: np.ndarray
    path: Path

    def matrix(self, cols: int) -> FloatRows:
        """The tensor as rows of `cols` numbers.

        Raises UnsupportedModelError unless it holds F32, F16 or BF16 values.
        """
        if self.dtype not in ("F32", "F16", "BF16"):
            raise UnsupportedModelError(
                f"{shown_path(self.path)}: tensor {self.name} holds {self.dtype} values; specla "
                f"converts F32, F16 and BF16 checkpoints"
            )
        return FloatRows(self.dtype, self.raw.reshape(-1, cols * _SIZES[self.dtype]))


@dataclass(frozen=True)
class FloatRows:
    """Rows of a float tensor. raw: uint8 [rows, row_bytes]."""

    dtype: str
    raw: np.ndarray

    def take(self, rows: np.ndarray | slice) -> np.ndarray:
        """The selected rows, exactly, as float32 [len(rows), cols]."""
        raw = np.ascontiguousarray(self.raw[rows])
        if self.dtype == "F32":
            return raw.view("<f4").astype(np.float32, copy=False)
        if self.dtype == "F16":
            return raw.view("<f2").astype(np.float32)
        return (raw.view("<u2").astype(np.uint32) << np.uint32(16)).view(np.float32)


def open_checkpoint(folder: Path) -> dict[str, SafeTensor]:
    """All tensors of a checkpoint folder, by name.

    Reads model.safetensors.index.json when it is there, else model.safetensors.
    Raises FileFormatError for anything missing, damaged or inconsistent.
    """
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        single = folder / "model.safetensors"
        if not single.exists():
            fail(folder, "holds neither model.safetensors nor model.safetensors.index.json")
        return read_safetensors(single)
    weight_map = Keys(index, load_json(index)).part("weight_map").values
    if not weight_map:
        fail(index, "has no weight_map; get the checkpoint again")
    files: dict[str, dict[str, SafeTensor]] = {}
    tensors = {}
    for name, file_name in weight_map.items():
        if not isinstance(file_name, str) or Path(file_name).name != file_name:
            fail(index, f"places {quoted(name)} in {quoted(file_name)}, which is no file name")
        if file_name not in files:
            files[file_name] = read_safetensors(folder / file_name)
        if name not in files[file_name]:
            fail(folder / file_name, f"tensor {quoted(name)} is missing, the index places it here")
        tensors[name] = files[file_name][name]
    return tensors


def read_safetensors(path: Path) -> dict[str, SafeTensor]:
    """The tensors of one safetensors file, checked to lie inside it without overlap."""
    try:
        with open_regular(path) as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is empty"
        raise FileFormatError(f"{shown_path(path)}: can't read it: {reason}") from None
    length = struct.unpack_from("<Q", data)[0] if len(data) >= 8 else -1
    if not 2 <= length <= min(len(data) - 8, _MAX_HEADER):
        fail(
            path, f"not a safetensors file, or truncated: a header of {length} bytes is impossible"
        )
    try:
        text = data[8 : 8 + length].decode("utf-8")
    except UnicodeDecodeError:
        fail(path, "damaged: the header is not UTF-8")
    body = np.frombuffer(data, dtype=np.uint8, offset=8 + length)
    entries = parse_json(text, path)
    entries.pop("__metadata__", None)
    tensors = {name: _tensor(path, name, entry, body) for name, entry in entries.items()}
    _check_overlap(path, entries)
    return tensors


def _tensor(path: Path, name: str, entry: Any, body: np.ndarray) -> SafeTensor:
    what = f"tensor {quoted(name)}"
    if not isinstance(entry, dict):
        fail(path, f"damaged: {what} is described by {quoted(entry)}")
    dtype, shape, offsets = entry.get("dtype"), entry.get("shape"), entry.get("data_offsets")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2 or not isinstance(dtype, str):
        fail(path, f"damaged: {what} is described by {quoted(entry)}")
    if dtype not in _SIZES:
        fail(path, f"{what} has the unknown type {quoted(dtype)}")
    start, stop = offsets
    n_bytes = math.prod(shape) * _SIZES[dtype]
    if stop - start != n_bytes:
        fail(path, f"damaged: {what} of shape {quoted(shape)} has {stop - start} bytes")
    if stop > body.size:
        fail(path, f"truncated: {what} ends at byte {stop} of {body.size}; get the file again")
    return SafeTensor(name, dtype, tuple(shape), body[start:stop], path)


def _sizes(value: Any) -> TypeGuard[list[int]]:
    """Whether a value is a list of a few integers >= 0."""
    return (
        isinstance(value, list)
        and len(value) <= 8
        and all(
            isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in value
        )
    )


def _check_overlap(path: Path, entries: dict[str, Any]) -> None:
    end, last = 0, ""
    for name, entry in sorted(entries.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = entry["data_offsets"]
        if start < end:
            fail(path, f"damaged: tensors {quoted(last)} and {quoted(name)} overlap")
        end, last = stop, name
