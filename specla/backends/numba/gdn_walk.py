"""One tile of a recurrent state through a chain of a forest, and what its tokens leave behind."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.gdn_tile import (
    advance,
    ask_row,
    copy_floats,
    copy_short,
    look,
    spare_of,
)
from specla.backends.numba.jit import device
from specla.backends.numba.tile_code import ROW_BYTES, TILE
from specla.backends.numba.vector_code import address


@device
def entry(array: Any, i: int, j: int) -> int:
    """Address of array[i, j, 0...]."""
    place: int = address(array) + array.strides[0] * i + array.strides[1] * j
    return place


@device
def _kept_tile(boundary: Any, index: int, head: int, column: int) -> int:
    """Address of a tile in a boundary state, 0 where ``index`` is negative."""
    if index < 0:
        return 0
    place: int = entry(boundary, index, head) + 4 * boundary.shape[2] * column
    return place


@device
def _ask(tokens: Any, nodes: Any, row: int, node: int, head: int, column: int) -> None:
    """Have what a token reads and writes brought to the cache: a store that misses it holds up all
    that come after."""
    q, _, v, _, _, out = tokens
    keys, deltas, _ = nodes
    ask_row(entry(deltas, node, head) + 4 * column, TILE)
    ask_row(entry(out, row, head) + 4 * column, TILE)
    ask_row(entry(v, row, head) + 4 * column, TILE)
    ask_row(entry(q, row, head % q.shape[1]), q.shape[2])
    if column == 0 and head < q.shape[1]:
        ask_row(entry(keys, node, head), q.shape[2])


@device
def _record(tokens: Any, nodes: Any, row: int, node: int, head: int) -> None:
    """A token's decay and, by the first value head of each key head, its key."""
    _, k, _, decay, _, _ = tokens
    keys, _, decays = nodes
    decays[node, head] = decay[row, head]
    if head < k.shape[1]:
        copy_floats(entry(keys, node, head), entry(k, row, head), k.shape[2])


@device
def walk(
    space: int,
    tile: int,
    tokens: Any,
    nodes: Any,
    boundary: Any,
    boundary_of_row: Any,
    rows: Any,
    first_row: int,
    source: int,
    head: int,
    column: int,
) -> None:
    """One tile, which starts at a column, through the rows of a chain.

    tokens: (q, k, v, decay, beta, out). nodes: (key, delta, decay) of the bank to be written.
    first_row: of the sequence. source: the boundary state to start from; negative: what the tile
    holds.
    """
    q, k, v, decay, beta, out = tokens
    key_dim, width, key_head = k.shape[2], min(TILE, v.shape[2] - column), head % k.shape[1]
    short, spare, count, row = width < TILE, spare_of(space, key_dim), rows.shape[0], rows[0]
    key, gate = entry(k, row, key_head), entry(decay, row, head)
    origin = _kept_tile(boundary, source, head, column)
    if origin and short:
        copy_short(spare, ROW_BYTES, origin, 4 * width, key_dim, width)
        origin = spare
    look(space, key_dim, tile, origin, key, gate)
    for index in range(1, count + 1):
        next_row, next_key, next_gate = row, 0, 0
        if index < count:
            next_row = rows[index]
            next_key, next_gate = entry(k, next_row, key_head), entry(decay, next_row, head)
            _ask(tokens, nodes, next_row, next_row - first_row, head, column)
        node, goal = row - first_row, _kept_tile(boundary, boundary_of_row[row], head, column)
        value = entry(v, row, head) + 4 * column
        advance(
            space,
            key_dim,
            tile,
            width,
            (entry(q, row, key_head), key, value, entry(beta, row, head)),
            (next_key, next_gate),
            spare if goal and short else goal,
            entry(nodes[1], node, head) + 4 * column,
            entry(out, row, head) + 4 * column,
        )
        if goal and short:
            copy_short(goal, 4 * width, spare, ROW_BYTES, key_dim, width)
        if column == 0:
            _record(tokens, nodes, row, node, head)
        row, key, gate = next_row, next_key, next_gate
