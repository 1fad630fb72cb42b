"""A strip of a recurrent state: up to STRIP tiles of TILE columns of S [key_dim, value_dim].

A strip is read from the state row by row, which is how memory likes to be read, and is folded and
decayed for its first token on the way into the tiles; each tile is then walked while it stays in
the first cache. All by address. Where key_dim is a power of two from GROUP on, a tile is walked in
passes by groups (gdn_code.py), in whose order its rows lie; else row by row.
"""

from __future__ import annotations

from typing import Any

from specla.backends.numba.gdn_code import (
    ENTER,
    GROUP,
    GROUP_BYTES,
    LEAVE,
    LEAVE_KEPT,
    LOOK,
    MOVE,
    MOVE_KEPT,
    delta_row,
    enter_row,
    group,
)
from specla.backends.numba.jit import device, routine
from specla.backends.numba.primitives import load_word, store_word
from specla.backends.numba.sums import ZERO, finish_tree, power_of_two, weighted_tree
from specla.backends.numba.tile_code import (
    DECAY,
    ROW_BYTES,
    TILE,
    UPDATE,
    branch,
    clear_row,
    copy_row,
)
from specla.backends.numba.vector_code import load_float, prefetch_near, store_float

STRIP = 4
"""Tiles of a strip."""
COLUMNS = STRIP * TILE
ALIGN = 64
AHEAD = 12
"""Rows of the state that are asked for before they are needed."""


@device
def space_needed(key_dim: int) -> int:
    """Floats of a work space: tiles of a strip and a spare one, partial sums, two rows."""
    return ((STRIP + 1) * key_dim + power_of_two(key_dim) + 2) * TILE + ALIGN // 4


@device
def aligned(address: int) -> int:
    """The first address from here on where a cache line starts."""
    return (address + ALIGN - 1) & -ALIGN


@device
def tile_of(space: int, key_dim: int, tile: int) -> int:
    return space + ROW_BYTES * key_dim * tile


@device
def spare_of(space: int, key_dim: int) -> int:
    return tile_of(space, key_dim, STRIP)


@device
def _partial(space: int, key_dim: int) -> int:
    return tile_of(space, key_dim, STRIP + 1)


@device
def _rows(space: int, key_dim: int) -> int:
    """Rows for a token's delta and value."""
    return _partial(space, key_dim) + ROW_BYTES * power_of_two(key_dim)


@device
def groups_of(key_dim: int) -> int:
    """Groups of a pass, or 0 where the tile is walked row by row."""
    return key_dim // GROUP if power_of_two(key_dim) == key_dim else 0


@device
def _order(key_dim: int) -> tuple[int, int]:
    """(runs, length): row length * j + i of the state is row runs * i + j of a tile."""
    groups = groups_of(key_dim)
    return (GROUP, groups) if groups else (1, key_dim)


@routine
def copy_floats(to: int, at: int, count: int) -> None:
    whole = count // TILE
    for i in range(whole):
        copy_row(to + ROW_BYTES * i, at + ROW_BYTES * i)
    for c in range(TILE * whole, count):
        store_word(to + 4 * c, load_word(at + 4 * c))


@device
def ask_row(at: int, count: int) -> None:
    """Have floats brought to the cache."""
    for i in range(0, 4 * count, 64):
        prefetch_near(at + i)


@routine
def copy_short(to: int, to_step: int, at: int, at_step: int, rows: int, width: int) -> None:
    """Rows of less than a tile's width; steps in bytes."""
    for i in range(rows):
        copy_floats(to + to_step * i, at + at_step * i, width)


@routine
def _enter_short_row(to: int, at: int, width: int, decay: int, factors: Any) -> None:
    """``enter_row`` for less than a row: zeros follow it in ``to``."""
    count, key, key_step, delta, delta_step, gate, gate_step = factors
    if to:
        clear_row(to)
    for c in range(width):
        x = load_float(at + 4 * c)
        for i in range(count):
            g, k = load_float(gate + gate_step * i), load_float(key + key_step * i)
            x = x * g + k * load_float(delta + delta_step * i + 4 * c)
        store_float(at + 4 * c, x)
        if to:
            store_float(to + 4 * c, x * load_float(decay))


@routine
def enter(
    space: int, key_dim: int, width: int, home: int, step: int, decay: int, factors: Any
) -> None:
    """Fold factors into the strip at ``home``, and take it to the tiles, decayed for a token.

    width: its columns. step: bytes from row to row of the state. decay: an address, or 0 for the
    fold alone. factors: (count >= 0, key, step, delta of this strip, step, decay, step): steps in
    bytes from one factor to the next.
    """
    runs, length = _order(key_dim)
    count, key, key_step, delta, delta_step, gate, gate_step = factors
    row = home
    for j in range(runs):
        for i in range(length):
            ask_row(row + AHEAD * step, width)
            to = space + ROW_BYTES * (runs * i + j)
            for start in range(0, width, TILE):
                at, change = row + 4 * start, delta + 4 * start
                mine = (count, key, key_step, change, delta_step, gate, gate_step)
                goal = to if decay else 0
                if start + TILE <= width:
                    enter_row(goal, at, decay, mine)
                else:
                    _enter_short_row(goal, at, width - start, decay, mine)
                to += ROW_BYTES * key_dim
            row, key = row + step, key + 4


@routine
def store(space: int, key_dim: int, width: int, home: int, step: int) -> None:
    """The tiles as columns of the state."""
    runs, length = _order(key_dim)
    for j in range(runs):
        for i in range(length):
            row, at = home + step * (length * j + i), space + ROW_BYTES * (runs * i + j)
            for start in range(0, width, TILE):
                copy_floats(row + 4 * start, at, min(TILE, width - start))
                at += ROW_BYTES * key_dim


@routine
def look(space: int, key_dim: int, tile: int, source: int, key: int, decay: int) -> None:
    """Prepare a tile for its first token: partial sums of S * k.

    source: a tile kept earlier, yet to be decayed, or 0: this tile, decayed already.
    """
    groups, partial = groups_of(key_dim), _partial(space, key_dim)
    if groups == 0:
        if source:
            for i in range(key_dim):
                copy_row(tile + ROW_BYTES * i, source + ROW_BYTES * i)
            _decay_rows(tile, decay, key_dim, partial)
        weighted_tree(tile, key, key_dim, power_of_two(key_dim), partial)
        return
    for i in range(groups):
        at, products = GROUP_BYTES * i, partial + ROW_BYTES * (groups + i)
        weights = (0, 0, 0, key + 4 * i, decay)
        if source:
            group(ENTER, (tile + at, 0, products, source + at, 0, groups), weights)
        else:
            group(LOOK, (0, 0, products, tile + at, 0, groups), weights)


@routine
def _decay_rows(tile: int, decay: int, key_dim: int, partial: int) -> None:
    g = load_float(decay)
    for i in range(key_dim):
        branch(1, DECAY, partial, tile + ROW_BYTES * i, 0, decay, 0, g, 0, 0)


@routine
def _by_rows(tile: int, partial: int, key_dim: int, kept: int, weights: Any) -> None:
    """``_by_groups`` for any key_dim, without the tree of the next token."""
    key, delta, query, _, _ = weights
    for i in range(key_dim):
        at = tile + ROW_BYTES * i
        branch(1, UPDATE, partial, at, 0, query, 0, ZERO, key + 4 * i, delta)
        if kept:
            copy_row(kept + ROW_BYTES * i, at)
    weighted_tree(tile, query, key_dim, power_of_two(key_dim), partial)


@routine
def _by_groups(tile: int, outputs: int, groups: int, kept: int, weights: Any) -> None:
    """One token's update, and if there is a next key, the next one's decay."""
    key, delta, query, next_key, next_decay = weights
    for i in range(groups):
        at, row = GROUP_BYTES * i, outputs + ROW_BYTES * i
        places = (tile + at, row, row + ROW_BYTES * groups, tile + at, kept + at, groups)
        mine = (key + 4 * i, delta, query + 4 * i, next_key + 4 * i, next_decay)
        if next_key and kept:
            group(MOVE_KEPT, places, mine)
        elif next_key:
            group(MOVE, places, mine)
        elif kept:
            group(LEAVE_KEPT, places, mine)
        else:
            group(LEAVE, places, mine)


@routine
def advance(
    space: int,
    key_dim: int,
    tile: int,
    width: int,
    token: Any,
    following: Any,
    kept: int,
    delta: int,
    out: int,
) -> None:
    """One token, after ``look`` or another.

    width: columns of the tile, at most TILE. token: (query, key, value, beta), addresses, of these
    columns. following: (key, decay) of the next token of the chain, or zeros. kept: where to keep
    the tile as it is after the token, or 0. delta, out: addresses of these columns; delta may be 0.
    """
    groups, partial, row = groups_of(key_dim), _partial(space, key_dim), _rows(space, key_dim)
    query, key, v, beta = token
    next_key, next_decay = following
    products = partial + ROW_BYTES * groups
    if groups:
        finish_tree(products, groups)
    if width < TILE:
        copy_floats(row + ROW_BYTES, v, width)
        v = row + ROW_BYTES
    delta_row(row, beta, v, products)
    weights = (key, row, query, next_key, next_decay)
    if groups:
        _by_groups(tile, partial, groups, kept, weights)
        finish_tree(partial, groups)
    else:
        _by_rows(tile, partial, key_dim, kept, weights)
    copy_floats(out, partial, width)
    if delta:
        copy_floats(delta, row, width)
    if groups == 0 and next_key:
        _decay_rows(tile, next_decay, key_dim, partial)
        weighted_tree(tile, next_key, key_dim, power_of_two(key_dim), partial)
