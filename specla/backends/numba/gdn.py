"""The gated delta rule over a forest (SpecLA, sections 4.1, 4.3 and 5.2).

The unit of work is a strip: COLUMNS columns of one value head's state S [key_dim, value_dim].
Columns never mix, so a unit folds what is pending, walks the whole forest and touches no other
unit's memory: units can run in any order, on any thread.

The pool's boundary states are scratch of one call, and here hold tiles as they are walked: strip by
strip, tile by tile, in the order of rows that gdn_tile.py gives them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.gdn_tile import (
    COLUMNS,
    advance,
    aligned,
    ask_row,
    copy_floats,
    copy_short,
    enter,
    look,
    space_needed,
    spare_of,
    store,
    tile_of,
)
from specla.backends.numba.jit import device, kernel
from specla.backends.numba.primitives import keep
from specla.backends.numba.tile_code import ROW_BYTES, TILE, address

_INDEX = "int32[::1]"
_TOKENS = "float32[:, :, :], float32[:, :, :], float32[:, :, :], float32[:, :], float32[:, :]"
_STATE = "float32[:, :, :, :, ::1]"
_BANKS = "float32[:, :, :, :, :, ::1], float32[:, :, :, :, :, ::1], float32[:, :, :, :, ::1]"


@device
def _entry(array: Any, i: int, j: int) -> int:
    """Address of array[i, j, 0...]."""
    place: int = address(array) + array.strides[0] * i + array.strides[1] * j
    return place


@device
def _factors(
    key_bank: Any,
    delta_bank: Any,
    decay_bank: Any,
    at: int,
    bank: int,
    layer: int,
    head: int,
    start: int,
    count: int,
) -> Any:
    """The first ``count`` factors of a bank, for one strip, as gdn_tile.enter wants them."""
    key = key_bank[at, bank, layer, 0, head % key_bank.shape[4]]
    delta = delta_bank[at, bank, layer, 0, head]
    decay = decay_bank[at, bank, layer, 0]
    return (
        count,
        address(key),
        key_bank.strides[3],
        address(delta) + 4 * start,
        delta_bank.strides[3],
        address(decay) + 4 * head,
        decay_bank.strides[3],
    )


@device
def _strips(value_dim: int) -> int:
    return (value_dim + COLUMNS - 1) // COLUMNS


@kernel(
    f"void({_TOKENS}, {_STATE}, {_BANKS}, float32[:, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 8)
    + ", int32[:, ::1], float32[:, :, :], intp, intp)"
)
def gdn_verify(
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    beta: Any,
    state: Any,
    key_bank: Any,
    delta_bank: Any,
    decay_bank: Any,
    boundary: Any,
    layer: int,
    slot: Any,
    pending_bank: Any,
    row_offset: Any,
    chain_rows: Any,
    chain_offset: Any,
    chain_sequence: Any,
    chain_source: Any,
    boundary_of_row: Any,
    pending: Any,
    out: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.gdn_verify, for units first..last of value_heads * ceil(value_dim / COLUMNS)."""
    key_dim, value_dim = state.shape[3], state.shape[4]
    strips = _strips(value_dim)
    memory = np.empty(space_needed(key_dim), np.float32)
    space = aligned(address(memory))
    for unit in range(first_unit, last_unit):
        head, start = unit // strips, unit % strips * COLUMNS
        key_head = head % k.shape[1]
        for chain in range(chain_sequence.shape[0]):
            b, source = chain_sequence[chain], chain_source[chain]
            at, current = slot[b], 1 - pending_bank[b]
            first, stop = chain_offset[chain], chain_offset[chain + 1]
            row = chain_rows[first]
            if source < 0:
                enter(
                    space,
                    key_dim,
                    min(COLUMNS, value_dim - start),
                    address(state[at, layer, head]) + 4 * start,
                    4 * value_dim,
                    _entry(decay, row, head),
                    _factors(
                        key_bank,
                        delta_bank,
                        decay_bank,
                        at,
                        pending_bank[b],
                        layer,
                        head,
                        start,
                        pending[layer, b],
                    ),
                )
            for column in range(start, min(start + COLUMNS, value_dim), TILE):
                width = min(TILE, value_dim - column)
                tile = tile_of(space, key_dim, (column - start) // TILE)
                kept_at, spare = 4 * key_dim * column, spare_of(space, key_dim)
                row, origin = chain_rows[first], 0
                key, gate = _entry(k, row, key_head), _entry(decay, row, head)
                if source >= 0:
                    origin = _entry(boundary, source, head) + kept_at
                    if width < TILE:
                        copy_short(spare, ROW_BYTES, origin, 4 * width, key_dim, width)
                        origin = spare
                look(space, key_dim, tile, origin, key, gate)
                for index in range(first + 1, stop + 1):
                    next_row, next_key, next_gate = row, 0, 0
                    if index < stop:
                        next_row = chain_rows[index]
                        next_key = _entry(k, next_row, key_head)
                        next_gate = _entry(decay, next_row, head)
                        # a store that misses the cache holds up all that come after it
                        mine = delta_bank[at, current, layer, next_row - row_offset[b], head]
                        ask_row(address(mine) + 4 * column, TILE)
                        ask_row(_entry(out, next_row, head) + 4 * column, TILE)
                        ask_row(_entry(v, next_row, head) + 4 * column, TILE)
                        ask_row(_entry(q, next_row, key_head), key_dim)
                        if column == 0 and head < k.shape[1]:
                            mine = key_bank[at, current, layer, next_row - row_offset[b], head]
                            ask_row(address(mine), key_dim)
                    goal = 0
                    if boundary_of_row[row] >= 0:
                        goal = _entry(boundary, boundary_of_row[row], head) + kept_at
                    node = row - row_offset[b]
                    mine = delta_bank[at, current, layer, node, head]
                    value = _entry(v, row, head) + 4 * column
                    advance(
                        space,
                        key_dim,
                        tile,
                        width,
                        (_entry(q, row, key_head), key, value, _entry(beta, row, head)),
                        (next_key, next_gate),
                        spare if goal and width < TILE else goal,
                        address(mine) + 4 * column,
                        _entry(out, row, head) + 4 * column,
                    )
                    if goal and width < TILE:
                        copy_short(goal, 4 * width, spare, ROW_BYTES, key_dim, width)
                    if column == 0:
                        decay_bank[at, current, layer, node, head] = decay[row, head]
                        # the first value head of each key head also records its keys
                        if head < k.shape[1]:
                            mine = key_bank[at, current, layer, node, head]
                            copy_floats(address(mine), key, key_dim)
                    row, key, gate = next_row, next_key, next_gate
    keep(memory)


@kernel(f"void({_TOKENS}, {_STATE}, intp, {_INDEX}, {_INDEX}, float32[:, :, :], intp, intp)")
def gdn_prefill(
    q: Any,
    k: Any,
    v: Any,
    decay: Any,
    beta: Any,
    state: Any,
    layer: int,
    slot: Any,
    row_offset: Any,
    out: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.gdn_prefill; units as in gdn_verify."""
    key_dim, value_dim = state.shape[3], state.shape[4]
    strips = _strips(value_dim)
    memory = np.empty(space_needed(key_dim), np.float32)
    space = aligned(address(memory))
    for unit in range(first_unit, last_unit):
        head, start = unit // strips, unit % strips * COLUMNS
        key_head, whole = head % k.shape[1], min(COLUMNS, value_dim - start)
        for b in range(slot.shape[0]):
            first, stop = row_offset[b], row_offset[b + 1]
            home, step = address(state[slot[b], layer, head]) + 4 * start, 4 * value_dim
            gate = _entry(decay, first, head)
            enter(space, key_dim, whole, home, step, gate, (0, 0, 0, 0, 0, 0, 0))
            for column in range(start, start + whole, TILE):
                tile = tile_of(space, key_dim, (column - start) // TILE)
                look(space, key_dim, tile, 0, _entry(k, first, key_head), gate)
                for row in range(first, stop):
                    more = row + 1 < stop
                    if row + 2 < stop:
                        ask_row(_entry(q, row + 1, key_head), key_dim)
                        ask_row(_entry(k, row + 2, key_head), key_dim)
                        ask_row(_entry(v, row + 1, head) + 4 * column, TILE)
                        ask_row(_entry(out, row + 1, head) + 4 * column, TILE)
                    value = _entry(v, row, head) + 4 * column
                    query, key = _entry(q, row, key_head), _entry(k, row, key_head)
                    advance(
                        space,
                        key_dim,
                        tile,
                        min(TILE, value_dim - column),
                        (query, key, value, _entry(beta, row, head)),
                        (
                            _entry(k, row + 1, key_head) if more else 0,
                            _entry(decay, row + 1, head) if more else 0,
                        ),
                        0 if more else tile,
                        0,
                        _entry(out, row, head) + 4 * column,
                    )
            store(space, key_dim, whole, home, step)
    keep(memory)


@kernel(f"void({_STATE}, {_BANKS}, intp, {_INDEX}, {_INDEX}, int32[:, ::1], intp, intp)")
def fold_state(
    state: Any,
    key_bank: Any,
    delta_bank: Any,
    decay_bank: Any,
    layer: int,
    slot: Any,
    pending_bank: Any,
    pending: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.fold_state; units as in gdn_verify."""
    key_dim, value_dim = state.shape[3], state.shape[4]
    strips = _strips(value_dim)
    for unit in range(first_unit, last_unit):
        head, start = unit // strips, unit % strips * COLUMNS
        for b in range(slot.shape[0]):
            at, bank, count = slot[b], pending_bank[b], pending[layer, b]
            if count:
                home = address(state[at, layer, head]) + 4 * start
                factors = _factors(
                    key_bank, delta_bank, decay_bank, at, bank, layer, head, start, count
                )
                enter(0, key_dim, min(COLUMNS, value_dim - start), home, 4 * value_dim, 0, factors)
