"""Bounds-checked scan of one GGUF file: where everything lies, nothing decoded yet.

Every count, length and offset is compared with the bytes that are left before it is used; the
work is proportional to the header that is really there, whatever the header claims.
Layout: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import itertools
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from specla.models.gguf import types
from specla.models.gguf.text import fail, quoted

_U32, _U64 = struct.Struct("<I"), struct.Struct("<Q")
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MAX_DIMS = 4
# The largest real files have about 100 keys, 2,000 tensors, 250,000 tokens and 500,000 merges.
_MAX_KEYS, _MAX_TENSORS, _MAX_STRINGS = 1 << 14, 1 << 16, 1 << 20
_MAX_NAME = 1 << 16
_MIN_KEY_BYTES, _MIN_TENSOR_BYTES = 8 + 1 + 4 + 1, 8 + 1 + 4 + 8 + 4 + 8


@dataclass(frozen=True)
class RawValue:
    """A metadata value still in the file: bytes start..stop hold `count` items of `item` type."""

    item: int
    is_array: bool
    count: int
    start: int
    stop: int


@dataclass(frozen=True)
class TensorInfo:
    """A tensor's place in the file. shape: row-major. start, stop: bytes from the file's begin."""

    name: str
    kind: str
    shape: tuple[int, ...]
    start: int
    stop: int


@dataclass(frozen=True)
class Header:
    """What one GGUF file holds."""

    version: int
    values: dict[str, RawValue]
    tensors: dict[str, TensorInfo]


class _Cursor:
    """A read position that never leaves the file."""

    def __init__(self, path: Path, data: mmap.mmap) -> None:
        self.path, self.data, self.size, self.at = path, data, len(data), 0

    def take(self, n_bytes: int, what: str) -> int:
        """Advance by n_bytes and return where they began."""
        left = self.size - self.at
        if n_bytes > left:
            fail(
                self.path,
                f"truncated or damaged: {what} at byte {self.at} needs {n_bytes} bytes, "
                f"the file has {left} more; get the file again",
            )
        start = self.at
        self.at += n_bytes
        return start

    def u32(self, what: str) -> int:
        value: int = _U32.unpack_from(self.data, self.take(4, what))[0]
        return value

    def u64(self, what: str) -> int:
        value: int = _U64.unpack_from(self.data, self.take(8, what))[0]
        return value

    def count(self, what: str, limit: int, min_bytes: int) -> int:
        """A number of items to follow: absurd ones are refused before any is read."""
        value = self.u64(f"the number of {what}")
        possible = (self.size - self.at) // min_bytes
        if value > min(limit, possible):
            fail(
                self.path,
                f"damaged or truncated: the header claims {value} {what}, "
                f"at most {min(limit, possible)} are possible in {self.size} bytes",
            )
        return value

    def name(self, what: str) -> str:
        length = self.u64(f"the length of {what}")
        if not 0 < length <= _MAX_NAME:
            fail(self.path, f"damaged: {what} has a length of {length} bytes (1 to {_MAX_NAME})")
        start = self.take(length, what)
        raw = self.data[start : self.at]
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            fail(self.path, f"damaged: {what} is not UTF-8: {quoted(raw)}")


def scan(path: Path, data: mmap.mmap) -> Header:
    """Parse the header of a whole GGUF file and check that all its tensor data is there.

    Raises FileFormatError, one line, for anything that isn't a sound GGUF file.
    """
    cursor = _Cursor(path, data)
    version = _version(cursor)
    n_tensors = cursor.count("tensors", _MAX_TENSORS, _MIN_TENSOR_BYTES)
    n_keys = cursor.count("metadata keys", _MAX_KEYS, _MIN_KEY_BYTES)
    values: dict[str, RawValue] = {}
    for index in range(n_keys):
        key = cursor.name(f"metadata key {index}")
        if key in values:
            fail(path, f"damaged: metadata key {quoted(key)} occurs twice")
        values[key] = _value(cursor, key)
    alignment = _alignment(cursor, values)
    infos = [_tensor(cursor, index) for index in range(n_tensors)]
    data_start = -(-cursor.at // alignment) * alignment
    return Header(version, values, _placed(cursor, infos, data_start, alignment))


def _version(cursor: _Cursor) -> int:
    if cursor.size < 4 or cursor.data[:4] != b"GGUF":
        found = quoted(bytes(cursor.data[:4]))
        fail(cursor.path, f"not a GGUF file: it begins with {found}, not b'GGUF'")
    cursor.take(4, "the magic")
    version = cursor.u32("the version")
    if version & 0xFFFF == 0 and version:
        fail(
            cursor.path,
            "a big-endian GGUF file; convert it to little-endian (gguf-convert-endian)",
        )
    if version not in _VERSIONS:
        fail(cursor.path, f"GGUF version {version} is not supported; specla reads 2 and 3")
    return version


def _value(cursor: _Cursor, key: str) -> RawValue:
    what = f"the value of {quoted(key)}"
    type_id = cursor.u32(f"the type of {quoted(key)}")
    if type_id != types.ARRAY:
        return _items(cursor, type_id, False, 1, what)
    item = cursor.u32(f"the item type of {quoted(key)}")
    if item == types.ARRAY:
        fail(cursor.path, f"{what} is an array of arrays, which no known model uses")
    limit = _MAX_STRINGS if item == types.STRING else cursor.size
    count = cursor.count(f"items in {quoted(key)}", limit, types.SIZES.get(item, 8))
    return _items(cursor, item, True, count, what)


def _items(cursor: _Cursor, item: int, is_array: bool, count: int, what: str) -> RawValue:
    start = cursor.at
    if item == types.STRING:
        length_of = f"the string length in {what}"
        for _ in range(count):
            cursor.take(cursor.u64(length_of), what)
    elif item in types.SIZES:
        cursor.take(count * types.SIZES[item], what)
    else:
        fail(cursor.path, f"damaged: {what} has the unknown GGUF value type {item}")
    return RawValue(item, is_array, count, start, cursor.at)


def _alignment(cursor: _Cursor, values: dict[str, RawValue]) -> int:
    raw = values.get("general.alignment")
    if raw is None:
        return _DEFAULT_ALIGNMENT
    if raw.is_array or raw.item != 4:
        fail(cursor.path, "general.alignment must be a uint32")
    alignment: int = _U32.unpack_from(cursor.data, raw.start)[0]
    if alignment < 8 or alignment & (alignment - 1):
        fail(cursor.path, f"general.alignment is {alignment}; a power of two from 8 is needed")
    return alignment


@dataclass(frozen=True)
class _Unplaced:
    name: str
    kind: str
    shape: tuple[int, ...]
    offset: int
    n_bytes: int


def _tensor(cursor: _Cursor, index: int) -> _Unplaced:
    name = cursor.name(f"the name of tensor {index}")
    what = f"tensor {quoted(name)}"
    n_dims = cursor.u32(f"the dimension count of {what}")
    if not 1 <= n_dims <= _MAX_DIMS:
        fail(cursor.path, f"damaged: {what} has {n_dims} dimensions (1 to {_MAX_DIMS})")
    dims = [cursor.u64(f"the dimensions of {what}") for _ in range(n_dims)]
    type_id = cursor.u32(f"the type of {what}")
    offset = cursor.u64(f"the offset of {what}")
    kind = types.tensor_types().get(type_id)
    if kind is None:
        fail(cursor.path, f"{what} has the GGML type {type_id}, which this `gguf` package lacks")
    elements = 1
    for dim in dims:
        elements *= dim
    # Python integers don't overflow: a hostile product is simply larger than the file
    if not 0 < elements <= cursor.size * kind.block:
        fail(
            cursor.path,
            f"damaged or truncated: {what} claims the shape {quoted(dims[::-1])}, "
            f"which can't lie in a file of {cursor.size} bytes",
        )
    if dims[0] % kind.block:
        fail(
            cursor.path,
            f"damaged: {what} has rows of {dims[0]}, not a multiple of "
            f"the {kind.name} block of {kind.block}",
        )
    n_bytes = elements // kind.block * kind.block_bytes
    return _Unplaced(name, kind.name, tuple(dims[::-1]), offset, n_bytes)


def _placed(
    cursor: _Cursor, infos: list[_Unplaced], data_start: int, alignment: int
) -> dict[str, TensorInfo]:
    placed: dict[str, TensorInfo] = {}
    for info in infos:
        what = f"tensor {quoted(info.name)}"
        if info.name in placed:
            fail(cursor.path, f"damaged: {what} occurs twice")
        if info.offset % alignment:
            fail(cursor.path, f"damaged: {what} at offset {info.offset} is not {alignment}-aligned")
        start = data_start + info.offset
        stop = start + info.n_bytes
        if stop > cursor.size:
            fail(
                cursor.path,
                f"truncated or damaged: {what} ends at byte {stop}, "
                f"the file has {cursor.size}; get the file again",
            )
        placed[info.name] = TensorInfo(info.name, info.kind, info.shape, start, stop)
    ordered = sorted(placed.values(), key=lambda info: info.start)
    for first, second in itertools.pairwise(ordered):
        if second.start < first.stop:
            names = f"{quoted(first.name)} and {quoted(second.name)}"
            fail(cursor.path, f"damaged: tensors {names} overlap")
    return placed
