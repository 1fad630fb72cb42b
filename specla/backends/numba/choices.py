"""Argmax and top-k: ties to the lowest token id."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.jit import device, kernel
from specla.backends.numba.primitives import bits, contiguous

MINUS_INF = np.float32(-np.inf)
INSERTION_LIMIT = 512
"""Largest k for which insertion is quicker than sorting the whole row."""

CHUNK, SHORT_CHUNK = 2048, 64
LOWEST = np.int32(-(2**31))
MINUS_INF_ORDER = np.int32(0x807FFFFF - 2**32)
ZERO = np.float32(0.0)


@device
def _order(x: Any) -> Any:
    """An integer with the order of the floats: equal zeros, NaN below everything."""
    word = bits(x + ZERO)  # -0.0 becomes +0.0
    return np.int32(word ^ ((word >> 31) & 0x7FFFFFFF)) if x == x else LOWEST


@device
def _highest(row: Any, start: int, size: int) -> Any:
    """The largest order of a chunk; this loop vectorises."""
    chunk = row[start : start + size]
    top = LOWEST
    for i in range(chunk.shape[0]):
        top = max(top, _order(chunk[i]))
    return top


@kernel("void(float32[:, :], int32[::1], intp, intp)")
def argmax(logits: Any, out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.argmax. Maxima of chunks, then a look for the first. A unit is a row."""
    for n in range(first_unit, last_unit):
        row = contiguous(logits[n])
        best, best_start = MINUS_INF_ORDER, -1
        for start in range(0, row.shape[0], CHUNK):
            top = _highest(row, start, CHUNK)
            if top > best:
                best, best_start = top, start
        at = best_start
        if at >= 0:
            while _order(row[at]) != best:
                at += 1
        out[n] = at


@kernel("void(float32[:, :], intp, float32[:, :], int32[:, :], intp, intp)")
def top_k(
    logits: Any, k: int, values_out: Any, ids_out: Any, first_unit: int, last_unit: int
) -> None:
    """See Backend.top_k, by insertion into the k best so far. A unit is a row.

    Chunks without any entry above the k-th best are passed over.
    """
    for n in range(first_unit, last_unit):
        row = contiguous(logits[n])
        values, ids = contiguous(values_out[n]), contiguous(ids_out[n])
        for start in range(0, row.shape[0], SHORT_CHUNK):
            if start >= k and _highest(row, start, SHORT_CHUNK) <= _order(values[k - 1]):
                continue
            for i in range(start, min(start + SHORT_CHUNK, row.shape[0])):
                x = row[i] if row[i] == row[i] else MINUS_INF
                # an equal entry that came earlier stays in front
                if i >= k and not x > values[k - 1]:
                    continue
                at = min(i, k - 1)
                while at > 0 and x > values[at - 1]:
                    values[at], ids[at] = values[at - 1], ids[at - 1]
                    at -= 1
                values[at], ids[at] = x, i
