"""Exact ranking of logits: descending value, ties to the lowest token id.

A NaN ranks as -inf, and -0.0 ties with +0.0. A value and its id are packed into one 64-bit key;
keys are distinct, so an ordinary (fast, unstable) sort has only one possible result.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int64 = npt.NDArray[np.int64]

_SIGN = np.uint32(31)
_MAGNITUDE = np.uint32(0x7FFFFFFF)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)


def _flip(bits: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Map float bits to integers that ascend as the floats descend. It is its own inverse."""
    flipped: npt.NDArray[np.uint32] = np.where(bits >> _SIGN, bits, bits ^ _MAGNITUDE)
    return flipped


def _clean(values: Float32) -> Float32:
    """NaN -> -inf and -0.0 -> +0.0, so that bits and values have one order."""
    values = values + np.float32(0.0)
    nan = np.isnan(values)
    if nan.any():
        values[nan] = -np.inf
    return values


def rank(values: Float32, k: int = 0, ids: Int64 | None = None) -> tuple[Float32, Int64]:
    """The ``k`` best (all if k is 0 or too large) of ``values``, best first.

    values: float32 [n].  ids: int64 [n], distinct token ids below 2**32 (default 0 .. n - 1).
    Returns the values (NaN replaced by -inf) and their ids.
    """
    values = _clean(values)
    if ids is None:
        ids = np.arange(values.size, dtype=np.int64)
    if 0 < k < values.size:
        # everything that ties with the k-th best stays in until the exact sort
        threshold = np.partition(values, values.size - k)[values.size - k]
        keep = np.flatnonzero(values >= threshold)
        values, ids = values[keep], ids[keep]
    keys = _flip(values.view(np.uint32)).astype(np.uint64) << _HALF | ids.astype(np.uint64)
    keys.sort()
    if k:
        keys = keys[:k]
    ranked = _flip((keys >> _HALF).astype(np.uint32)).view(np.float32)
    return ranked, (keys & _LOW).astype(np.int64)


def best(values: Float32) -> int:
    """Index of the highest value, ties to the lowest index; a NaN never beats a number."""
    index = int(np.argmax(values))
    # argmax reports the first NaN, if there is one
    if np.isnan(values[index]):
        index = int(np.argmax(_clean(values)))
    return index
