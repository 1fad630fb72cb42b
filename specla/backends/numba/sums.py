"""Halving trees (docs/arithmetic.md, section 2): along a row, and down the columns of a tile."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.jit import device, routine
from specla.backends.numba.tile_code import (
    ROW_BYTES,
    SQUARE,
    SUM,
    TILE,
    WEIGH,
    WEIGH_PADDED,
    branch,
    clear_row,
    row_dot,
    row_sum,
)
from specla.backends.numba.vector_code import address

ZERO = np.float32(0.0)


@device
def power_of_two(n: int) -> int:
    """Smallest power of two >= n."""
    size = 1
    while size < n:
        size *= 2
    return size


@routine
def tree_of_squares(x: Any, scratch: Any) -> Any:
    """tree(x * x) of a row; scratch: at least half of power_of_two(len(x)), and 1."""
    n = x.shape[0]
    if n == 128:  # the usual head
        return row_dot(128, address(x), address(x))
    half = power_of_two(n) // 2
    if half == 0:
        return x[0] * x[0]
    at, rows = address(scratch), n // (8 * TILE)
    if n == 2 * half and rows:
        for i in range(rows):
            row = ROW_BYTES * i
            branch(8, SQUARE, at + row, address(x) + row, ROW_BYTES * rows, 0, 0, ZERO, 0, 0)
        finish_tree(at, rows)
        return row_sum(TILE, at)
    for i in range(n - half):
        scratch[i] = x[i] * x[i] + x[i + half] * x[i + half]
    for i in range(n - half, half):
        scratch[i] = x[i] * x[i] + ZERO
    if half >= TILE:
        finish_tree(at, half // TILE)
        return row_sum(TILE, at)
    return tree_of_row(scratch, half)


@routine
def tree_of_row(x: Any, size: int) -> Any:
    """Tree over ``size`` entries (a power of two) of scratch ``x``, which is overwritten."""
    while size > 1:
        size //= 2
        for i in range(size):
            x[i] = x[i] + x[i + size]
    return x[0]


@routine
def finish_tree(partial: int, rows: int) -> None:
    """Row 0 of the tile at address ``partial`` = tree over its ``rows`` (a power of two) rows."""
    if rows == 16:
        branch(16, SUM, partial, partial, ROW_BYTES, 0, 0, ZERO, 0, 0)
        return
    while rows >= 8:
        rows //= 8
        for i in range(rows):
            at = partial + ROW_BYTES * i
            branch(8, SUM, at, at, ROW_BYTES * rows, 0, 0, ZERO, 0, 0)
    while rows > 1:
        rows //= 2
        for i in range(rows):
            at = partial + ROW_BYTES * i
            branch(2, SUM, at, at, ROW_BYTES * rows, 0, 0, ZERO, 0, 0)


@routine
def weighted_tree(tile: int, weight: int, count: int, size: int, partial: int) -> None:
    """Row 0 of ``partial`` = tree over rows i < size of weight[i] * tile[i]; +0.0 from ``count``.

    tile, weight, partial: addresses. size: a power of two >= count >= 1.
    """
    if count == size and size >= 8:
        rows = size // 8
        for i in range(rows):
            at, to = tile + ROW_BYTES * i, partial + ROW_BYTES * i
            branch(8, WEIGH, to, at, ROW_BYTES * rows, weight + 4 * i, 4 * rows, ZERO, 0, 0)
        finish_tree(partial, rows)
        return
    if size == 1:
        branch(1, WEIGH, partial, tile, 0, weight, 0, ZERO, 0, 0)
        return
    # entries from ``count`` are +0.0: a row whose partner is missing still has it added
    half = size // 2
    for i in range(min(half, count)):
        at, to, w = tile + ROW_BYTES * i, partial + ROW_BYTES * i, weight + 4 * i
        if i + half < count:
            branch(2, WEIGH, to, at, ROW_BYTES * half, w, 4 * half, ZERO, 0, 0)
        else:
            branch(1, WEIGH_PADDED, to, at, 0, w, 0, ZERO, 0, 0)
    for i in range(min(half, count), half):
        clear_row(partial + ROW_BYTES * i)
    finish_tree(partial, half)
