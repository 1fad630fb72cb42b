"""A GGUF file taken apart, so that a mutation can change a field and leave the rest in order.

Reading is lenient and independent of specla's own reader: what it can't follow is None.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
STRING, ARRAY = 8, 9


@dataclass
class Key:
    """name, type: as in the file.  item: type of an array's items.  values: raw items (strings
    without their length); one for a scalar.  count: what the file will claim, None for the truth.
    """

    name: bytes
    type: int
    item: int
    values: list[bytes]
    count: int | None = None


@dataclass
class Tensor:
    """dims: in the file's order, fastest first.  offset: from the begin of the data."""

    name: bytes
    dims: list[int]
    type: int
    offset: int


@dataclass
class Layout:
    """version, n_tensors, n_keys: what the file will claim; None for the truth."""

    keys: list[Key]
    tensors: list[Tensor]
    data: bytes
    version: int = 3
    magic: bytes = b"GGUF"
    n_tensors: int | None = None
    n_keys: int | None = None
    padding: int = 32
    tail: bytes = field(default=b"")

    def key(self, name: bytes) -> Key | None:
        return next((key for key in self.keys if key.name == name), None)

    def build(self) -> bytes:
        n_tensors = len(self.tensors) if self.n_tensors is None else self.n_tensors
        n_keys = len(self.keys) if self.n_keys is None else self.n_keys
        parts = [self.magic, struct.pack("<IQQ", self.version, _u64(n_tensors), _u64(n_keys))]
        for key in self.keys:
            parts += [_string(key.name), struct.pack("<I", key.type & 0xFFFFFFFF)]
            count = len(key.values) if key.count is None else key.count
            if key.type == ARRAY:
                parts.append(struct.pack("<IQ", key.item & 0xFFFFFFFF, _u64(count)))
            kind = key.item if key.type == ARRAY else key.type
            parts += [_string(value) for value in key.values] if kind == STRING else key.values
        for tensor in self.tensors:
            parts += [_string(tensor.name), struct.pack("<I", len(tensor.dims))]
            parts += [struct.pack("<Q", _u64(dim)) for dim in tensor.dims]
            parts.append(struct.pack("<IQ", tensor.type & 0xFFFFFFFF, _u64(tensor.offset)))
        head = b"".join(parts)
        return head + bytes(-len(head) % max(self.padding, 1)) + self.data + self.tail


def parse(data: bytes) -> Layout | None:
    """The layout of a file that is sound as far as its header goes, else None."""
    try:
        return _parse(data)
    except (struct.error, IndexError, OverflowError, MemoryError):
        return None


def _parse(data: bytes) -> Layout | None:
    version, n_tensors, n_keys = struct.unpack_from("<IQQ", data, 4)
    if n_tensors > 4096 or n_keys > 4096:
        return None
    at = 24
    keys, tensors = [], []
    for _ in range(n_keys):
        name, at = _read_string(data, at)
        (kind,) = struct.unpack_from("<I", data, at)
        at += 4
        item, count = kind, 1
        if kind == ARRAY:
            item, count = struct.unpack_from("<IQ", data, at)
            at += 12
        if count > len(data) or (item != STRING and item not in SIZES):
            return None
        values = []
        for _ in range(count):
            if item == STRING:
                value, at = _read_string(data, at)
            else:
                value, at = data[at : at + SIZES[item]], at + SIZES[item]
            values.append(value)
        keys.append(Key(name, kind, item, values))
    for _ in range(n_tensors):
        name, at = _read_string(data, at)
        (n_dims,) = struct.unpack_from("<I", data, at)
        if n_dims > 8:
            return None
        dims = list(struct.unpack_from(f"<{n_dims}Q", data, at + 4))
        kind, offset = struct.unpack_from("<IQ", data, at + 4 + 8 * n_dims)
        tensors.append(Tensor(name, dims, kind, offset))
        at += 4 + 8 * n_dims + 12
    return Layout(keys, tensors, data[at + -at % 32 :], version, data[:4])


def _read_string(data: bytes, at: int) -> tuple[bytes, int]:
    (length,) = struct.unpack_from("<Q", data, at)
    if at + 8 + length > len(data):
        raise IndexError
    return data[at + 8 : at + 8 + length], at + 8 + length


def _string(raw: bytes) -> bytes:
    return struct.pack("<Q", len(raw)) + raw


def _u64(value: int) -> int:
    return value & 0xFFFFFFFFFFFFFFFF
