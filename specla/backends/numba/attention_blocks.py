"""Attention over one block of 64 logical positions: find it, score it, mix it.

Most arguments are addresses, and steps in bytes. Vectors of queries and cache entries have
``width`` entries, a power of two >= 64; where D is smaller they are padded with zeros. Padding can
only change the sign of a score's zero, which nobody sees: a score counts through exp(s - max).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.attention_code import (
    GROUP_BYTES,
    LEAVES,
    VECTOR_BYTES,
    combine,
    dots,
    fold,
    weigh,
    widen_line,
)
from specla.backends.numba.jit import device, routine
from specla.backends.numba.softmax_code import exp_block, highest
from specla.backends.numba.vector_code import address, prefetch, store_float

PAGE = 64
TILE = 32
"""Columns of values that are mixed at once."""
TILE_BYTES = 4 * TILE
KEYS = 16
"""Keys that are scored at once: as many as fit the nearest cache beside some queries."""
LINE = 64
"""Bytes of a cache line."""
AHEAD = 16
"""How many keys ahead of its use a key is asked for from memory."""
SUMS = PAGE // LEAVES
"""Groups of partial sums of a block."""
ROOM = 4 * 8 * 8 + SUMS * GROUP_BYTES // 4
"""Floats of ``room`` below, beside groups for the partial sums of ``width``."""
ZERO = np.float32(0.0)
MINUS_INF = np.float32(-np.inf)


@routine
def find_entries(
    entries: Any,
    first: int,
    padded: Any,
    cache: Any,
    table: Any,
    head: int,
    committed: int,
    paths: Any,
    path: int,
    start: int,
    stop: int,
) -> None:
    """entries[first:] = addresses of the vectors of logical positions start..stop.

    Of ``padded`` copies where those are too short.

    cache: [pages, PAGE, heads, D], table: of one slot. The ancestors by depth are in paths from
    ``path`` on. padded: [PAGE, width], zero beyond D.
    """
    for j in range(stop - start):
        position = start + j
        row = position if position < committed else paths[path + position - committed]
        vector = cache[table[row // PAGE], row % PAGE, head]
        if padded.shape[0]:
            copy = padded[j]
            for i in range(vector.shape[0]):
                copy[i] = vector[i]
            entries[first + j] = address(copy)
        else:
            entries[first + j] = address(vector)


@device
def _dots_of_key(
    groups: int, cache: Any, q0: int, q1: int, q2: int, q3: int, k: int, to: int, parts: int
) -> None:
    """Vectors to, to + 8 vectors, ... = all but the last three levels of tree(q * k)."""
    step = VECTOR_BYTES * groups
    for r in range(groups):
        o, at = VECTOR_BYTES * r, parts + GROUP_BYTES * r
        dots(cache, at, q0 + o, q1 + o, q2 + o, q3 + o, k + 8 * cache.itemsize * r, step)
    left = groups
    while left > 4:
        left //= 2
        for r in range(left):
            at = parts + GROUP_BYTES * r
            t1, t2, t3 = at + VECTOR_BYTES, at + 2 * VECTOR_BYTES, at + 3 * VECTOR_BYTES
            combine(2, 0, at, GROUP_BYTES * left, at, t1, t2, t3)
    t1, t2, t3 = to + 8 * VECTOR_BYTES, to + 16 * VECTOR_BYTES, to + 24 * VECTOR_BYTES
    if left == 4:
        combine(4, 0, parts, GROUP_BYTES, to, t1, t2, t3)
    elif left == 2:
        combine(2, 0, parts, GROUP_BYTES, to, t1, t2, t3)
    else:
        combine(1, 0, parts, GROUP_BYTES, to, t1, t2, t3)


@routine
def score(
    cache: Any,
    q0: int,
    q1: int,
    q2: int,
    q3: int,
    entries: Any,
    begin: int,
    end: int,
    known: int,
    width: int,
    scale: Any,
    to0: int,
    to1: int,
    to2: int,
    to3: int,
    room: int,
) -> None:
    """Scores of four queries: to = tree(q * k) * scale of entries[begin:end], and up to 7 more.

    known: entries whose addresses are known, to be asked for in time; 0 if they have been.
    room: 32 vectors, then groups of partial sums for ``width``.
    """
    size, parts = cache.itemsize * width, room + 32 * VECTOR_BYTES
    for first in range(begin, end, 8):
        for j in range(min(8, end - first)):
            k, to = entries[first + j], room + VECTOR_BYTES * j
            if first + j + AHEAD < known:
                for o in range(0, size, LINE):
                    prefetch(entries[first + j + AHEAD] + o)
            # written out, so that the sizes are constants of the code
            if width == 256:
                _dots_of_key(4, cache, q0, q1, q2, q3, k, to, parts)
            elif width == 128:
                _dots_of_key(2, cache, q0, q1, q2, q3, k, to, parts)
            else:
                _dots_of_key(width // (LEAVES * 8), cache, q0, q1, q2, q3, k, to, parts)
        o = 4 * first
        fold(to0 + o, room, scale)
        fold(to1 + o, room + 8 * VECTOR_BYTES, scale)
        fold(to2 + o, room + 16 * VECTOR_BYTES, scale)
        fold(to3 + o, room + 24 * VECTOR_BYTES, scale)


@routine
def load_values(
    cache: Any, entries: Any, count: int, known: int, tile: int, tiles: int, to: int
) -> None:
    """One tile of columns of ``count`` entries as floats [PAGE, TILE].

    Asks for a part of the next block, entries[count:known], row by row as it lies in memory.
    """
    size = cache.itemsize * TILE
    for j in range(count):
        widen_line(cache, to + TILE_BYTES * j, entries[j] + size * tile)
    rows = PAGE // tiles
    for j in range(count + rows * tile, min(count + rows * (tile + 1), known)):
        for o in range(0, size * tiles, LINE):
            prefetch(entries[j] + o)


@routine
def mix(
    p0: int, p1: int, mask0: int, mask1: int, values: int, to0: int, to1: int, parts: int
) -> None:
    """One tile of columns: to0 and to1 += tree(p * v) over a block's positions.

    mask0, mask1: masks of the positions that count, or both 0, when all do. parts: SUMS groups.
    """
    step = TILE_BYTES * LEAVES
    for column in range(0, TILE_BYTES, 2 * VECTOR_BYTES):
        for r in range(SUMS):
            to, v, o = parts + GROUP_BYTES * r, values + column + TILE_BYTES * r, 4 * r
            if mask0 == 0:
                weigh(to, p0 + o, p1 + o, v, step, 0, 0)
            else:
                weigh(to, p0 + o, p1 + o, v, step, mask0 + o, mask1 + o)
        x0, x1 = to0 + column, to1 + column
        combine(SUMS, 1, parts, GROUP_BYTES, x0, x0 + VECTOR_BYTES, x1, x1 + VECTOR_BYTES)


@routine
def softmax(scores: int, n: int) -> Any:
    """Replace n scores by exp(s - max), fill the last block with zeros; returns their sum."""
    blocks = (n + PAGE - 1) // PAGE
    for j in range(n, blocks * PAGE):
        store_float(scores + 4 * j, MINUS_INF)  # exp of which is +0.0
    top = highest(scores, blocks * PAGE)
    total = ZERO
    for block in range(blocks):
        total = total + exp_block(scores + 4 * PAGE * block, top)
    return total
