"""The orders in which the contract adds floats (docs/arithmetic.md, sections 2, 5 and 6)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def halves(x, LOG: tl.constexpr, ROWS: tl.constexpr):
    """Sum over the last axis of x [ROWS, 2 ** LOG] by adding halves until one is left: [ROWS].

    ``tl.split`` of a last axis of two gives both halves without any addition of its own.
    """
    for i in tl.static_range(LOG):
        pairs = tl.permute(tl.reshape(x, [ROWS, 2, 2 ** (LOG - 1 - i)]), (0, 2, 1))
        low, high = tl.split(pairs)
        x = low + high
    return tl.reshape(x, [ROWS])


@triton.jit
def halves_of_rows(x, LOG: tl.constexpr, COLUMNS: tl.constexpr):
    """The same over the first axis of x [2 ** LOG, COLUMNS]: [COLUMNS]."""
    for i in tl.static_range(LOG):
        pairs = tl.permute(tl.reshape(x, [2, 2 ** (LOG - 1 - i), COLUMNS]), (1, 2, 0))
        low, high = tl.split(pairs)
        x = low + high
    return tl.reshape(x, [COLUMNS])
