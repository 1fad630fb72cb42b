"""One tile of a recurrent state: TILE columns of S [key_dim, value_dim], loaded, folded, walked."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.jit import routine
from specla.backends.numba.sums import ZERO, finish_tree, weighted_tree
from specla.backends.numba.tile_code import (
    DECAY,
    ROW_BYTES,
    TILE,
    UPDATE,
    address,
    branch,
    copy_row,
    fold_row,
)


@routine
def load(tile: Any, state: Any, start: int, width: int) -> None:
    """Columns start..start + width of state [K, V], zeros beyond."""
    if width == TILE:
        to, at, step = address(tile), address(state) + 4 * start, 4 * state.shape[1]
        for i in range(tile.shape[0]):
            copy_row(to + ROW_BYTES * i, at + step * i)
        return
    for i in range(tile.shape[0]):
        for c in range(width):
            tile[i, c] = state[i, start + c]
        for c in range(width, TILE):
            tile[i, c] = ZERO


@routine
def store(tile: Any, state: Any, start: int, width: int) -> None:
    if width == TILE:
        at, to, step = address(tile), address(state) + 4 * start, 4 * state.shape[1]
        for i in range(tile.shape[0]):
            copy_row(to + step * i, at + ROW_BYTES * i)
        return
    for i in range(tile.shape[0]):
        for c in range(width):
            state[i, start + c] = tile[i, c]


@routine
def _decayed_tree(tile: int, decay: Any, k: int, key_dim: int, size: int, partial: int) -> None:
    """S = S * decay in place; row 0 of partial = tree(S * k). Addresses."""
    if key_dim == size and size >= 8:
        rows = size // 8
        for i in range(rows):
            at, to, w = tile + ROW_BYTES * i, partial + ROW_BYTES * i, k + 4 * i
            branch(8, DECAY, to, at, ROW_BYTES * rows, w, 4 * rows, decay, 0, 0)
        finish_tree(partial, rows)
        return
    for i in range(key_dim):
        branch(1, DECAY, partial, tile + ROW_BYTES * i, 0, k, 0, decay, 0, 0)
    weighted_tree(tile, k, key_dim, size, partial)


@routine
def _updated_tree(tile: int, k: int, d: int, q: int, key_dim: int, size: int, partial: int) -> None:
    """S = S + k * d in place; row 0 of partial = tree(S * q). Addresses."""
    if key_dim == size and size >= 8:
        rows = size // 8
        for i in range(rows):
            at, to = tile + ROW_BYTES * i, partial + ROW_BYTES * i
            w, key = q + 4 * i, k + 4 * i
            branch(8, UPDATE, to, at, ROW_BYTES * rows, w, 4 * rows, ZERO, key, d)
        finish_tree(partial, rows)
        return
    for i in range(key_dim):
        branch(1, UPDATE, partial, tile + ROW_BYTES * i, 0, q, 0, ZERO, k + 4 * i, d)
    weighted_tree(tile, q, key_dim, size, partial)


@routine
def step(
    tile: Any,
    start: int,
    width: int,
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    beta: Any,
    out: Any,
    d: Any,
    partial: Any,
    size: int,
) -> None:
    """One token: the tile moves on, ``d`` gets its deltas, ``out`` its output."""
    at, to, key_dim = address(tile), address(partial), tile.shape[0]
    _decayed_tree(at, decay, address(k), key_dim, size, to)
    for c in range(width):
        d[c] = beta * (v[start + c] - partial[0, c])
    for c in range(width, TILE):
        d[c] = ZERO
    _updated_tree(at, address(k), address(d), address(q), key_dim, size, to)
    for c in range(width):
        out[start + c] = partial[0, c]


@routine
def fold_pending(
    tile: Any,
    start: int,
    width: int,
    head: int,
    key: Any,
    delta: Any,
    decay: Any,
    count: int,
    d: Any,
) -> None:
    """Fold ``count`` factors of one bank and layer: key [nodes, Hk, K], delta [nodes, Hv, V]."""
    for i in range(count):
        for c in range(width):
            d[c] = delta[i, head, start + c]
        for c in range(width, TILE):
            d[c] = ZERO
        k, g = key[i, head % key.shape[1]], decay[i, head]
        for j in range(tile.shape[0]):
            fold_row(address(tile) + ROW_BYTES * j, g, k[j], address(d))
