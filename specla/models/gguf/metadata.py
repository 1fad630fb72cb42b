"""Typed access to GGUF metadata. A wrong type is an error line, never a silent conversion."""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from specla.models.gguf import types
from specla.models.gguf.scan import RawValue
from specla.models.gguf.text import fail, quoted, shown_key

_U64 = struct.Struct("<Q")
T = TypeVar("T")


class _Required:
    """Type of REQUIRED, the default that means: the key must be there."""


REQUIRED: Final = _Required()


class Metadata(Mapping[str, Any]):
    """The key-value part of a GGUF file: a mapping from keys to plain Python values (int, float,
    bool, str or a list of one of them), decoded when asked for.

    Each typed getter returns `default` when the key is absent, or raises FileFormatError when no
    default was given; a value of another type or range raises FileFormatError in either case.
    """

    def __init__(self, path: Path, data: mmap.mmap, values: Mapping[str, RawValue]) -> None:
        self.path = path
        self._data = data
        self._values = values

    def __getitem__(self, key: str) -> Any:
        return self._decode(key, self._values[key])

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def count(self, key: str) -> int | None:
        """Number of items of an array, without decoding it; None if absent or no array."""
        raw = self._values.get(key)
        return raw.count if raw is not None and raw.is_array else None

    def digest(self, key: str) -> str | None:
        """What tells one array from another, without decoding it; None if absent or no array."""
        raw = self._values.get(key)
        if raw is None or not raw.is_array:
            return None
        return blake2b(self._data[raw.start : raw.stop], digest_size=16).hexdigest()

    def type_name(self, key: str) -> str:
        """Type of a present key's value, such as "uint32" or "array of string"."""
        raw = self._values[key]
        name = types.value_type_name(raw.item)
        return f"array of {name}" if raw.is_array else name

    def get_int(
        self,
        key: str,
        default: int | T | _Required = REQUIRED,
        *,
        low: int | None = None,
        high: int | None = None,
    ) -> int | T:
        """An integer of any width, optionally within low..high (inclusive)."""
        if self._absent(key, default):
            return default  # type: ignore[return-value]
        value = int(self._scalar(key, types.INTEGERS, "an integer"))
        if (low is not None and value < low) or (high is not None and value > high):
            bounds = f"{'' if low is None else low} to {'' if high is None else high}".strip()
            self.reject(key, f"is {value}; {bounds} is possible")
        return value

    def get_float(
        self,
        key: str,
        default: float | T | _Required = REQUIRED,
        *,
        low: float = -math.inf,
        high: float = math.inf,
    ) -> float | T:
        """A finite float within low..high; integers are taken as floats."""
        if self._absent(key, default):
            return default  # type: ignore[return-value]
        value = float(self._scalar(key, types.FLOATS | types.INTEGERS, "a number"))
        if not math.isfinite(value):
            self.reject(key, f"is {value}; a finite number is needed")
        if not low <= value <= high:
            self.reject(key, f"is {value}; {low:g} to {high:g} is possible")
        return value

    def get_bool(self, key: str, default: bool | T | _Required = REQUIRED) -> bool | T:
        if self._absent(key, default):
            return default  # type: ignore[return-value]
        return bool(self._scalar(key, frozenset({types.BOOL}), "a bool"))

    def get_str(self, key: str, default: str | T | _Required = REQUIRED) -> str | T:
        if self._absent(key, default):
            return default  # type: ignore[return-value]
        return str(self._scalar(key, frozenset({types.STRING}), "a string"))

    def get_ints(self, key: str, default: list[int] | T | _Required = REQUIRED) -> list[int] | T:
        found: list[int] | T = self._array(key, default, types.INTEGERS, "integers")
        return found

    def get_floats(
        self, key: str, default: list[float] | T | _Required = REQUIRED
    ) -> list[float] | T:
        found: list[float] | T = self._array(key, default, types.FLOATS, "floats")
        return found

    def get_bools(self, key: str, default: list[bool] | T | _Required = REQUIRED) -> list[bool] | T:
        found: list[bool] | T = self._array(key, default, frozenset({types.BOOL}), "bools")
        return found

    def get_strs(self, key: str, default: list[str] | T | _Required = REQUIRED) -> list[str] | T:
        found: list[str] | T = self._array(key, default, frozenset({types.STRING}), "strings")
        return found

    def reject(self, key: str, why: str) -> NoReturn:
        """Raise FileFormatError about a key's value; `why` goes on from the key's name."""
        fail(self.path, f"metadata {shown_key(key)} {why}")

    def _absent(self, key: str, default: object) -> bool:
        if key in self._values:
            return False
        if isinstance(default, _Required):
            self.reject(key, "is missing; the file is incomplete or of another kind")
        return True

    def _scalar(self, key: str, allowed: frozenset[int], wanted: str) -> Any:
        raw = self._values[key]
        if raw.is_array or raw.item not in allowed:
            self._wrong_type(key, raw, wanted)
        return self._decode(key, raw)

    def _array(self, key: str, default: Any, allowed: frozenset[int], wanted: str) -> Any:
        if self._absent(key, default):
            return default
        raw = self._values[key]
        if not raw.is_array or raw.item not in allowed:
            self._wrong_type(key, raw, f"an array of {wanted}")
        return self._decode(key, raw)

    def _wrong_type(self, key: str, raw: RawValue, wanted: str) -> NoReturn:
        found = f"array of {raw.count} items" if raw.is_array else quoted(self._decode(key, raw))
        self.reject(key, f"must be {wanted}, found {self.type_name(key)} {found}")

    def _decode(self, key: str, raw: RawValue) -> Any:
        if raw.item == types.STRING:
            items: list[Any] = self._strings(key, raw)
        else:
            dtype = types.SCALARS[raw.item][1]
            array = np.frombuffer(self._data, dtype=dtype, count=raw.count, offset=raw.start)
            if raw.item == types.BOOL:
                if array.size and int(array.max()) > 1:
                    self.reject(key, f"holds the byte {int(array.max())} where 0 or 1 is needed")
                array = array.astype(bool)
            items = array.tolist()
        return items if raw.is_array else items[0]

    def _strings(self, key: str, raw: RawValue) -> list[str]:
        # lengths were checked by the scan
        blob = self._data[raw.start : raw.stop]
        items, at = [], 0
        try:
            for _ in range(raw.count):
                stop = at + 8 + _U64.unpack_from(blob, at)[0]
                items.append(blob[at + 8 : stop].decode("utf-8"))
                at = stop
        except UnicodeDecodeError:
            self.reject(key, f"holds text that is not UTF-8: {quoted(blob[at + 8 : stop])}")
        return items
