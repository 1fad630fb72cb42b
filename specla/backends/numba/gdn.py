"""The gated delta rule over a forest (SpecLA, sections 4.1, 4.3 and 5.2).

The unit of work is a tile: TILE columns of one value head's state S [key_dim, value_dim]. Columns
never mix, so a unit folds what is pending, walks the whole forest and touches no other unit's
memory: units can run in any order, on any thread.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.gdn_tile import fold_pending, load, step, store
from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.sums import power_of_two
from specla.backends.numba.tile_code import TILE

_INDEX = "int32[::1]"
_TOKENS = "float32[:, :, :], float32[:, :, :], float32[:, :, :], float32[:, :], float32[:, :]"


@kernel(
    f"void({_TOKENS}, float32[:, :, :, :, ::1], float32[:, :, :, :, :, ::1], "
    "float32[:, :, :, :, :, ::1], float32[:, :, :, :, ::1], float32[:, :, :, ::1], intp, "
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
    """See Backend.gdn_verify, for units first..last of value_heads * ceil(value_dim / TILE)."""
    key_dim, value_dim = state.shape[3], state.shape[4]
    tiles = (value_dim + TILE - 1) // TILE
    size = power_of_two(key_dim)
    tile = np.empty((key_dim, TILE), np.float32)
    partial = np.empty((size, TILE), np.float32)
    d = np.empty(TILE, np.float32)
    for unit in range(first_unit, last_unit):
        head, start = unit // tiles, unit % tiles * TILE
        width = min(TILE, value_dim - start)
        key_head = head % k.shape[1]
        for chain in range(chain_sequence.shape[0]):
            b = chain_sequence[chain]
            at, current = slot[b], 1 - pending_bank[b]
            if chain_source[chain] >= 0:
                load(tile, boundary[chain_source[chain], head], start, width)
            else:
                load(tile, state[at, layer, head], start, width)
                count = pending[layer, b]
                if count:
                    old = pending_bank[b]
                    fold_pending(
                        tile,
                        start,
                        width,
                        head,
                        key_bank[at, old, layer],
                        delta_bank[at, old, layer],
                        decay_bank[at, old, layer],
                        count,
                        d,
                    )
                    store(tile, state[at, layer, head], start, width)
            for index in range(chain_offset[chain], chain_offset[chain + 1]):
                row = chain_rows[index]
                node = row - row_offset[b]
                step(
                    tile,
                    start,
                    width,
                    contiguous(q[row, key_head]),
                    contiguous(k[row, key_head]),
                    contiguous(v[row, head]),
                    decay[row, head],
                    beta[row, head],
                    contiguous(out[row, head]),
                    d,
                    partial,
                    size,
                )
                kept = delta_bank[at, current, layer, node, head]
                for c in range(width):
                    kept[start + c] = d[c]
                if start == 0:
                    decay_bank[at, current, layer, node, head] = decay[row, head]
                if boundary_of_row[row] >= 0:
                    store(tile, boundary[boundary_of_row[row], head], start, width)


@kernel(
    "void(float32[:, :, :], float32[:, :, :, :, :, ::1], intp, " + ", ".join([_INDEX] * 3) + ")"
)
def record_keys(
    k: Any, key_bank: Any, layer: int, slot: Any, pending_bank: Any, row_offset: Any
) -> None:
    """The keys of all rows go to the current bank."""
    for b in range(slot.shape[0]):
        bank = key_bank[slot[b], 1 - pending_bank[b], layer]
        for row in range(row_offset[b], row_offset[b + 1]):
            for h in range(k.shape[1]):
                for i in range(k.shape[2]):
                    bank[row - row_offset[b], h, i] = k[row, h, i]


@kernel(
    f"void({_TOKENS}, float32[:, :, :, :, ::1], intp, {_INDEX}, {_INDEX}, "
    "float32[:, :, :], intp, intp)"
)
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
    tiles = (value_dim + TILE - 1) // TILE
    size = power_of_two(key_dim)
    tile = np.empty((key_dim, TILE), np.float32)
    partial = np.empty((size, TILE), np.float32)
    d = np.empty(TILE, np.float32)
    for unit in range(first_unit, last_unit):
        head, start = unit // tiles, unit % tiles * TILE
        width = min(TILE, value_dim - start)
        key_head = head % k.shape[1]
        for b in range(slot.shape[0]):
            mine = state[slot[b], layer, head]
            load(tile, mine, start, width)
            for row in range(row_offset[b], row_offset[b + 1]):
                step(
                    tile,
                    start,
                    width,
                    contiguous(q[row, key_head]),
                    contiguous(k[row, key_head]),
                    contiguous(v[row, head]),
                    decay[row, head],
                    beta[row, head],
                    contiguous(out[row, head]),
                    d,
                    partial,
                    size,
                )
            store(tile, mine, start, width)


@kernel(
    "void(float32[:, :, :, :, ::1], float32[:, :, :, :, :, ::1], float32[:, :, :, :, :, ::1], "
    f"float32[:, :, :, :, ::1], intp, {_INDEX}, {_INDEX}, int32[:, ::1])"
)
def fold_state(
    state: Any,
    key_bank: Any,
    delta_bank: Any,
    decay_bank: Any,
    layer: int,
    slot: Any,
    pending_bank: Any,
    pending: Any,
) -> None:
    """See Backend.fold_state."""
    heads, key_dim, value_dim = state.shape[2:]
    for b in range(slot.shape[0]):
        at, bank = slot[b], pending_bank[b]
        for h in range(heads):
            for i in range(key_dim):
                row = state[at, layer, h, i]
                for factor in range(pending[layer, b]):
                    key = key_bank[at, bank, layer, factor, h % key_bank.shape[4], i]
                    decay = decay_bank[at, bank, layer, factor, h]
                    d = delta_bank[at, bank, layer, factor, h]
                    for c in range(value_dim):
                        row[c] = row[c] * decay + key * d[c]
