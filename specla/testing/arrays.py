"""Arrays of kernel checks: outputs that start as NaN, ordinary and hostile floats, equal bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 1.0, np.inf, -np.inf, np.nan], dtype=np.float32
)
MOODS = ("plain", "tiny", "huge", "signed zeros", "hostile")


def filled(*shape: int, dtype: str = "float32") -> Array:
    """An output that no kernel has written: NaN, or the lowest integer."""
    array = np.empty(shape, dtype=dtype)
    array[...] = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).min
    return array


def quantised_rows(backend: Any, x: Array) -> Any:
    """Room for the quantised rows of x that no kernel has written; on backends of host arrays."""

    def room(_name: str, *shape: int, dtype: str = "float32") -> Array:
        return filled(*shape, dtype=dtype)

    return backend.quantised_rows(*x.shape, room)


def normal(rng: np.random.Generator, *shape: int) -> Array:
    """float32 normal deviates over several magnitudes, a few exact zeros among them."""
    x = rng.standard_normal(shape) * np.exp(rng.uniform(-3, 3, shape))
    return np.where(rng.random(shape) < 0.05, 0, x).astype(np.float32)


def values(rng: np.random.Generator, mood: str, *shape: int) -> Array:
    """float32 of a mood (one of MOODS): hostile mixes in a few of SPECIAL."""
    x = normal(rng, *shape)
    if mood == "tiny":
        x = (x * np.float32(1e-40)).astype(np.float32)
    elif mood == "huge":
        x = (x * np.float32(1e18)).astype(np.float32)
    elif mood == "signed zeros":
        x = np.where(rng.random(shape) < 0.7, np.copysign(np.float32(0), x), x)
    elif mood == "hostile":
        x = np.where(rng.random(shape) < 0.1, rng.choice(SPECIAL, shape), x)
    return x.astype(np.float32)


def strided(rng: np.random.Generator, x: Array) -> Array:
    """The same values, half of the time as columns of a wider array whose other entries are NaN."""
    if rng.random() < 0.5:
        return x
    wide = np.full((*x.shape[:-1], x.shape[-1] + 5), np.nan, dtype=x.dtype)
    wide[..., 3 : 3 + x.shape[-1]] = x
    return wide[..., 3 : 3 + x.shape[-1]]


def equal(found: Array, wanted: Array) -> bool:
    """Same dtype, shape and bytes; all NaNs count as the same."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    both = np.isnan(found) & np.isnan(wanted)
    return np.where(both, 0, found).tobytes() == np.where(both, 0, wanted).tobytes()


def difference_of(found: Array, wanted: Array) -> str:
    """Where two arrays that are not equal differ, in words."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return f"{found.dtype} {list(found.shape)} instead of {wanted.dtype} {list(wanted.shape)}"
    differ = _words(found) != _words(wanted)
    if found.dtype.kind == "f":
        differ &= ~(np.isnan(found) & np.isnan(wanted))
    places = np.argwhere(differ)
    first: Sequence[int] = tuple(int(i) for i in places[0])
    one, other = found[tuple(first)], wanted[tuple(first)]
    text = f"{one!r} instead of {other!r} at {list(first)}, {len(places)} of {found.size} differ"
    lowest = found.dtype.kind == "i" and one == np.iinfo(found.dtype).min
    return text + ("; it looks as if it was never written" if lowest or np.isnan(one) else "")


def _words(array: Array) -> Array:
    if array.dtype.kind != "f":
        return array
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
