"""Writing a GGUF file: header first, then tensors in chunks of rows, so that memory stays small."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO, NamedTuple

from specla.models.gguf.types import TensorType, tensor_types

ALIGNMENT = 32
_VERSION = 3
_CODES = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"),
          "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"),
          "i64": (11, "<q"), "f64": (12, "<d")}  # fmt: skip


class Value(NamedTuple):
    """A metadata value. kind: "u32", "i32", "f32", "bool", "str", ...; a list makes an array."""

    kind: str
    value: int | float | bool | str | Sequence[int] | Sequence[float] | Sequence[str]


@dataclass(frozen=True)
class TensorToWrite:
    """A tensor to be written.

    kind: GGML type name.  shape: row-major.  chunks: called once, yields the encoded bytes.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    chunks: Callable[[], Iterator[bytes]]

    @property
    def n_bytes(self) -> int:
        elements = 1
        for dim in self.shape:
            elements *= dim
        kind = _type_of(self.kind)[1]
        return elements // kind.block * kind.block_bytes


def write_gguf(
    file: BinaryIO,
    metadata: dict[str, Value],
    tensors: Sequence[TensorToWrite],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> int:
    """Write a whole GGUF file (version 3, little-endian) and return its size in bytes.

    progress: called with (tensor bytes written, tensor bytes in all).
    """
    total = sum(tensor.n_bytes for tensor in tensors)
    size = file.write(_header(metadata, tensors))
    done = 0
    for tensor in tensors:
        start = done
        for chunk in tensor.chunks():
            size += file.write(chunk)
            done += len(chunk)
            progress(done, total)
        if done - start != tensor.n_bytes:
            raise RuntimeError(f"{tensor.name}: wrote {done - start} of {tensor.n_bytes} bytes")
        size += file.write(bytes(-size % ALIGNMENT))
    return size


def _type_of(name: str) -> tuple[int, TensorType]:
    return next(item for item in tensor_types().items() if item[1].name == name)


def _header(metadata: dict[str, Value], tensors: Sequence[TensorToWrite]) -> bytes:
    parts = [b"GGUF", struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        parts += [_string(key), _packed(value)]
    offset = 0
    for tensor in tensors:
        dims = tensor.shape[::-1]
        parts += [_string(tensor.name), struct.pack(f"<I{len(dims)}Q", len(dims), *dims)]
        parts.append(struct.pack("<IQ", _type_of(tensor.kind)[0], offset))
        offset += -(-tensor.n_bytes // ALIGNMENT) * ALIGNMENT
    header = b"".join(parts)
    return header + bytes(-len(header) % ALIGNMENT)


def _string(text: str) -> bytes:
    raw = text.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def _packed(value: Value) -> bytes:
    items = value.value
    if isinstance(items, (list, tuple)):
        if value.kind == "str":
            return struct.pack("<IIQ", 9, 8, len(items)) + b"".join(map(_string, items))
        type_id, code = _CODES[value.kind]
        body = struct.pack(f"<{len(items)}{code[1]}", *items)
        return struct.pack("<IIQ", 9, type_id, len(items)) + body
    if value.kind == "str":
        return struct.pack("<I", 8) + _string(str(items))
    type_id, code = _CODES[value.kind]
    return struct.pack("<I", type_id) + struct.pack(code, items)
