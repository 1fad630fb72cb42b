"""Argmax and top-k: ties to the lowest token id."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.jit import device, kernel
from specla.backends.numba.primitives import bits, contiguous

MINUS_INF = np.float32(-np.inf)
INSERTION_LIMIT = 512
"""Largest k for which insertion is quicker than sorting the whole row."""


CHUNK = 2048
LOWEST = np.int32(-(2**31))
MINUS_INF_ORDER = np.int32(0x807FFFFF - 2**32)
ZERO = np.float32(0.0)


@device
def _order(x: Any) -> Any:
    """An integer with the order of the floats: equal zeros, NaN below everything."""
    word = bits(x + ZERO)  # -0.0 becomes +0.0
    return np.int32(word ^ ((word >> 31) & 0x7FFFFFFF)) if x == x else LOWEST


@kernel("void(float32[:, :], int32[::1])")
def argmax(logits: Any, out: Any) -> None:
    """See Backend.argmax. Integer maxima of chunks (which vectorise), then a look for the first."""
    for n in range(logits.shape[0]):
        row = contiguous(logits[n])
        best, best_start = MINUS_INF_ORDER, -1
        for start in range(0, row.shape[0], CHUNK):
            chunk = row[start : start + CHUNK]
            top = LOWEST
            for i in range(chunk.shape[0]):
                top = max(top, _order(chunk[i]))
            if top > best:
                best, best_start = top, start
        at = best_start
        if at >= 0:
            while _order(row[at]) != best:
                at += 1
        out[n] = at


@kernel("void(float32[:, :], intp, float32[:, :], int32[:, :])")
def top_k(logits: Any, k: int, values_out: Any, ids_out: Any) -> None:
    """See Backend.top_k, by insertion into the k best so far."""
    for n in range(logits.shape[0]):
        row = contiguous(logits[n])
        values, ids = contiguous(values_out[n]), contiguous(ids_out[n])
        for i in range(row.shape[0]):
            x = row[i] if row[i] == row[i] else MINUS_INF
            # an equal entry that came earlier stays in front
            if i >= k and not x > values[k - 1]:
                continue
            at = min(i, k - 1)
            while at > 0 and x > values[at - 1]:
                values[at], ids[at] = values[at - 1], ids[at - 1]
                at -= 1
            values[at], ids[at] = x, i
