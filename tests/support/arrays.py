"""Small helpers for kernel tests: outputs that start as NaN, equality of bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

NAN_BITS = np.uint32(0x7FC00000)


def filled(*shape: int, dtype: str = "float32") -> np.ndarray:
    """An output that no kernel has written: NaN, or the lowest integer."""
    array = np.empty(shape, dtype=dtype)
    array[...] = np.nan if array.dtype.kind == "f" else np.iinfo(array.dtype).min
    return array


def quantised_rows(backend: Any, x: np.ndarray) -> Any:
    """Room for the quantised rows of x that no kernel has written."""

    def room(_name: str, *shape: int, dtype: str = "float32") -> np.ndarray:
        return filled(*shape, dtype=dtype)

    return backend.quantised_rows(*x.shape, room)


def normal(rng: np.random.Generator, *shape: int) -> np.ndarray:
    """float32 normal deviates over several magnitudes, a few exact zeros among them."""
    x = rng.standard_normal(shape) * np.exp(rng.uniform(-3, 3, shape))
    return np.where(rng.random(shape) < 0.05, 0, x).astype(np.float32)


def equal(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Same dtype, shape and bytes; all NaNs count as the same."""
    if found.dtype != wanted.dtype or found.shape != wanted.shape:
        return False
    if found.dtype.kind != "f":
        return bool(np.array_equal(found, wanted))
    both = np.isnan(found) & np.isnan(wanted)
    return np.where(both, 0, found).tobytes() == np.where(both, 0, wanted).tobytes()
