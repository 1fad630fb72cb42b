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
    enter,
    look,
    space_needed,
    store,
    tile_of,
)
from specla.backends.numba.gdn_walk import entry, walk
from specla.backends.numba.jit import device, kernel
from specla.backends.numba.primitives import keep
from specla.backends.numba.tile_code import TILE
from specla.backends.numba.vector_code import address

_INDEX = "int32[::1]"
_TOKENS = "float32[:, :, :], float32[:, :, :], float32[:, :, :], float32[:, :], float32[:, :]"
_STATE = "float32[:, :, :, :, ::1]"
_BANKS = "float32[:, :, :, :, :, ::1], float32[:, :, :, :, :, ::1], float32[:, :, :, :, ::1]"


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
        whole = min(COLUMNS, value_dim - start)
        for chain in range(chain_sequence.shape[0]):
            b, source = chain_sequence[chain], chain_source[chain]
            at, bank = slot[b], pending_bank[b]
            rows = chain_rows[chain_offset[chain] : chain_offset[chain + 1]]
            if source < 0:
                home, gate = (
                    address(state[at, layer, head]) + 4 * start,
                    entry(decay, rows[0], head),
                )
                count = pending[layer, b]
                factors = _factors(
                    key_bank, delta_bank, decay_bank, at, bank, layer, head, start, count
                )
                enter(space, key_dim, whole, home, 4 * value_dim, gate, factors)
            current = 1 - bank
            nodes = (
                key_bank[at, current, layer],
                delta_bank[at, current, layer],
                decay_bank[at, current, layer],
            )
            for column in range(start, start + whole, TILE):
                walk(
                    space,
                    tile_of(space, key_dim, (column - start) // TILE),
                    (q, k, v, decay, beta, out),
                    nodes,
                    boundary,
                    boundary_of_row,
                    rows,
                    row_offset[b],
                    source,
                    head,
                    column,
                )
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
            gate = entry(decay, first, head)
            enter(space, key_dim, whole, home, step, gate, (0, 0, 0, 0, 0, 0, 0))
            for column in range(start, start + whole, TILE):
                tile = tile_of(space, key_dim, (column - start) // TILE)
                look(space, key_dim, tile, 0, entry(k, first, key_head), gate)
                for row in range(first, stop):
                    more = row + 1 < stop
                    if row + 2 < stop:
                        ask_row(entry(q, row + 1, key_head), key_dim)
                        ask_row(entry(k, row + 2, key_head), key_dim)
                        ask_row(entry(v, row + 1, head) + 4 * column, TILE)
                        ask_row(entry(out, row + 1, head) + 4 * column, TILE)
                    value = entry(v, row, head) + 4 * column
                    query, key = entry(q, row, key_head), entry(k, row, key_head)
                    advance(
                        space,
                        key_dim,
                        tile,
                        min(TILE, value_dim - column),
                        (query, key, value, entry(beta, row, head)),
                        (
                            entry(k, row + 1, key_head) if more else 0,
                            entry(decay, row + 1, head) if more else 0,
                        ),
                        0 if more else tile,
                        0,
                        entry(out, row, head) + 4 * column,
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
