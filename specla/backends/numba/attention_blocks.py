"""Attention over one block of 64 logical positions: load it, score it, mix it.

Queries are numbered; ``scores`` is [queries, positions], ``mixed`` [queries, D padded to tiles].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.elementary import exp
from specla.backends.numba.jit import device, routine
from specla.backends.numba.primitives import widen
from specla.backends.numba.sums import ZERO, power_of_two, tree_of_row, weighted_tree
from specla.backends.numba.tile_code import ROW_BYTES, TILE, address, row_dot, widen_row

PAGE = 64
NAN = np.float32(np.nan)


@device
def _entry(cache: Any, table: Any, row: int, head: int) -> Any:
    """The vector of one cache row; cache [pages, PAGE, heads, D], table of one slot."""
    return cache[table[row // PAGE], row % PAGE, head]


@device
def _logical_row(committed: int, paths: Any, path: int, position: int) -> int:
    """Cache row of a logical position; the ancestors by depth are in paths from ``path`` on."""
    return position if position < committed else paths[path + position - committed]


@device
def _widen_rows(vector: Any, to: int, step: int) -> None:
    """The whole rows of a cache entry as floats, to addresses ``to``, ``to + step``, ..."""
    for t in range(vector.shape[0] // TILE):
        widen_row(to + step * t, vector, TILE * t)


@routine
def load_keys(
    keys: Any,
    cache: Any,
    table: Any,
    head: int,
    committed: int,
    paths: Any,
    path: int,
    start: int,
    stop: int,
) -> None:
    """Positions start..stop of one block, zeros beyond.

    For head dimensions that ``row_dot`` serves as rows, keys [PAGE, 1, D]; for others as columns,
    keys [PAGE / TILE, D, TILE].
    """
    by_rows = keys.shape[0] == PAGE
    for j in range(PAGE):
        if start + j < stop:
            row = _logical_row(committed, paths, path, start + j)
            vector = _entry(cache, table, row, head)
            if by_rows:
                _widen_rows(vector, address(keys) + 4 * keys.shape[2] * j, ROW_BYTES)
            else:
                for i in range(vector.shape[0]):
                    keys[j // TILE, i, j % TILE] = widen(vector[i])
        elif by_rows:
            for i in range(keys.shape[2]):
                keys[j, 0, i] = ZERO
        else:
            for i in range(keys.shape[1]):
                keys[j // TILE, i, j % TILE] = ZERO


@routine
def load_values(
    values: Any,
    cache: Any,
    table: Any,
    head: int,
    committed: int,
    paths: Any,
    path: int,
    start: int,
    stop: int,
) -> None:
    """Positions start..stop as rows: values [ceil(D / TILE), PAGE, TILE]; other rows untouched."""
    for j in range(stop - start):
        row = _logical_row(committed, paths, path, start + j)
        vector = _entry(cache, table, row, head)
        _widen_rows(vector, address(values) + ROW_BYTES * j, ROW_BYTES * PAGE)
        for i in range(vector.shape[0] // TILE * TILE, vector.shape[0]):
            values[i // TILE, j, i % TILE] = widen(vector[i])


@routine
def score(
    q: int, dim: int, keys: Any, scale: Any, scores: Any, query: int, start: int, partial: Any
) -> None:
    """scores[query, start:] = tree(q * k) * scale of one block; keys as ``load_keys`` left them.

    q: address of the query.
    """
    if keys.shape[0] == PAGE:
        at, step = address(keys), 4 * dim
        for j in range(PAGE):
            if dim == 256:
                one = row_dot(256, q, at + step * j)
            elif dim == 128:
                one = row_dot(128, q, at + step * j)
            else:
                one = row_dot(64, q, at + step * j)
            scores[query, start + j] = one * scale
        return
    size, to = power_of_two(dim), address(partial)
    for half in range(PAGE // TILE):
        weighted_tree(address(keys) + ROW_BYTES * dim * half, q, dim, size, to)
        for c in range(TILE):
            scores[query, start + half * TILE + c] = partial[0, c] * scale


@routine
def mix(
    scores: Any, query: int, start: int, values: Any, count: int, mixed: Any, partial: Any
) -> None:
    """mixed[query] += tree(p * v) of one block, ``count`` of whose positions the query sees."""
    weights = address(scores) + 4 * (scores.shape[1] * query + start)
    for t in range(values.shape[0]):
        tile = address(values) + ROW_BYTES * PAGE * t
        weighted_tree(tile, weights, count, PAGE, address(partial))
        for c in range(TILE):
            mixed[query, t * TILE + c] = mixed[query, t * TILE + c] + partial[0, c]


@routine
def softmax(scores: Any, query: int, n: int, scratch: Any) -> Any:
    """Replace n scores by exp(s - max), fill the last block with zeros; returns their sum."""
    top = scores[query, 0]
    bad = False
    for j in range(n):
        top = scores[query, j] if scores[query, j] > top else top
        bad |= scores[query, j] != scores[query, j]
    if bad:
        top = NAN
    blocks = (n + PAGE - 1) // PAGE
    for j in range(n):
        scores[query, j] = exp(scores[query, j] - top)
    for j in range(n, blocks * PAGE):
        scores[query, j] = ZERO
    total = ZERO
    for block in range(blocks):
        for j in range(PAGE):
            scratch[j] = scores[query, block * PAGE + j]
        total = total + tree_of_row(scratch, PAGE)
    return total
