"""The orders in which the contract adds floats (docs/arithmetic.md, sections 2, 5 and 6).

A reduction of two values has one order, so the compiler may do each level as it likes: with lanes'
shuffles and few registers.
"""

from __future__ import annotations

import triton
import triton.language as tl

from specla.backends.triton.launch import INTERPRETED

LOG_BLOCK = 6
BLOCK = 2**LOG_BLOCK
"""Positions, or token ids, of a block of section 6."""

_SPLIT = tl.constexpr(INTERPRETED)


@triton.jit
def _plus(a, b):
    return a + b


@triton.jit
def _added(x):
    """Sum over the middle axis of x [R, 2, C], whose length is two: [R, C]."""
    if _SPLIT:
        # the interpreter takes a reduction value by value, and its own sum begins with +0.0
        low, high = tl.split(tl.permute(x, (0, 2, 1)))
        return low + high
    else:
        return tl.reduce(x, 1, _plus)


@triton.jit
def halves(x, LOG: tl.constexpr, ROWS: tl.constexpr):
    """Sum over the last axis of x [ROWS, 2 ** LOG] by adding halves until one is left: [ROWS]."""
    for i in tl.static_range(LOG):
        x = _added(tl.reshape(x, [ROWS, 2, 2 ** (LOG - 1 - i)]))
    return tl.reshape(x, [ROWS])


@triton.jit
def halves_of_rows(x, LOG: tl.constexpr, COLUMNS: tl.constexpr):
    """The same over the first axis of x [2 ** LOG, COLUMNS]: [COLUMNS].

    By splits everywhere: of whole columns they take fewer barriers than reductions do.
    """
    for i in tl.static_range(LOG):
        pairs = tl.permute(tl.reshape(x, [2, 2 ** (LOG - 1 - i), COLUMNS]), (1, 2, 0))
        low, high = tl.split(pairs)
        x = low + high
    return tl.reshape(x, [COLUMNS])
