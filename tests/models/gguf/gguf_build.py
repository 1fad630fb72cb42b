"""GGUF bytes for tests, written field by field so that any field can be made wrong."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

TYPE_IDS = {
    "F32": 0,
    "F16": 1,
    "Q4_0": 2,
    "Q8_0": 8,
    "Q4_K": 12,
    "Q5_K": 13,
    "Q6_K": 14,
    "BF16": 30,
}
_SCALARS = {
    "u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"),
    "i32": (5, "<i"), "f32": (6, "<f"), "bool": (7, "<?"), "u64": (10, "<Q"), "i64": (11, "<q"),
    "f64": (12, "<d"),
}  # fmt: skip


class Typed:
    """A metadata value with an explicit type: Typed("u16", 3), Typed("u32", [1, 2])."""

    def __init__(self, kind: str, value: Any) -> None:
        self.kind, self.value = kind, value


class Tensor:
    """A tensor with explicit row-major shape, GGML type id, data, and optionally its offset."""

    def __init__(
        self, shape: Sequence[int], type_id: int, data: bytes, offset: int | None = None
    ) -> None:
        self.shape, self.type_id, self.data, self.offset = tuple(shape), type_id, data, offset


def string(text: str | bytes) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(raw)) + raw


def value(item: Any) -> bytes:
    """Type id and payload of a metadata value."""
    if isinstance(item, bytes):
        return item
    typed = item if isinstance(item, Typed) else Typed(_kind_of(item), item)
    if isinstance(typed.value, (list, tuple)):
        if typed.kind == "str":
            body = b"".join(string(text) for text in typed.value)
            return struct.pack("<IIQ", 9, 8, len(typed.value)) + body
        type_id, code = _SCALARS[typed.kind]
        body = b"".join(struct.pack(code, number) for number in typed.value)
        return struct.pack("<IIQ", 9, type_id, len(typed.value)) + body
    if typed.kind == "str":
        return struct.pack("<I", 8) + string(typed.value)
    type_id, code = _SCALARS[typed.kind]
    return struct.pack("<I", type_id) + struct.pack(code, typed.value)


def _kind_of(item: Any) -> str:
    first = item[0] if isinstance(item, (list, tuple)) and item else item
    for python, kind in ((bool, "bool"), (int, "u32"), (float, "f32"), (str, "str")):
        if isinstance(first, python):
            return kind
    raise TypeError(f"no GGUF type for {item!r}")


def tensor(array: np.ndarray, kind: str = "F32") -> Tensor:
    """A tensor from float32 values (F32, F16) or from raw uint8 rows given with their kind."""
    if kind in ("F32", "F16"):
        data = array.astype("<f4" if kind == "F32" else "<f2").tobytes()
        return Tensor(array.shape, TYPE_IDS[kind], data)
    raise ValueError(kind)


def gguf_bytes(
    metadata: Mapping[str, Any] | Sequence[tuple[str, Any]] = (),
    tensors: Mapping[str, Tensor] | Sequence[tuple[str, Tensor]] = (),
    *,
    magic: bytes = b"GGUF",
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
) -> bytes:
    keys = list(metadata.items() if isinstance(metadata, Mapping) else metadata)
    items = list(tensors.items() if isinstance(tensors, Mapping) else tensors)
    head = magic + struct.pack("<I", version)
    head += struct.pack("<Q", len(items) if n_tensors is None else n_tensors)
    head += struct.pack("<Q", len(keys) if n_keys is None else n_keys)
    for key, item in keys:
        head += string(key) + value(item)
    body = b""
    for name, item in items:
        offset = len(body) if item.offset is None else item.offset
        head += string(name) + struct.pack("<I", len(item.shape))
        head += b"".join(struct.pack("<Q", dim) for dim in reversed(item.shape))
        head += struct.pack("<IQ", item.type_id, offset)
        body += item.data + bytes(-len(item.data) % alignment)
    return head + bytes(-len(head) % alignment) + body
