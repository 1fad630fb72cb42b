"""What a step and a commit need to know about their sequences, as flat integer arrays.

Built on the host from the trees, the schedule and each sequence's place; uploaded once; after that
no kernel needs the host. N rows (nodes), B sequences, L recurrent layers, C chains, W waves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from itertools import accumulate
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from specla.core.banks import BankMove
from specla.core.schedule import Schedule, heavy_light
from specla.core.topology import Forest

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Place:
    """Where a sequence stands when a step begins.

    slot: its index in the pools.  committed: positions already in the state, pending included.
    pending_bank: bank (0 or 1) that holds the pending factors; the step writes to the other.
    pending_state, pending_window: for each recurrent layer, how many pending factors the layer's
    recurrent state / convolution window must still fold (0 where an earlier step has done so).
    """

    slot: int
    committed: int
    pending_bank: int
    pending_state: tuple[int, ...]
    pending_window: tuple[int, ...]


@dataclass(frozen=True)
class StepPlan:
    """int32 arrays, NumPy on the host and a backend's own on the device, and a few host integers.

    Per row:
      tokens [N]         token id
      sequence [N]       index of the row's sequence in the batch
      parent [N]         row of the parent, -1 for a root
      position [N]       logical position: committed + depth
      kv_row [N]         cache row that the row's key and value are written to: committed + index
                         in its tree. Equal to ``position`` on a chain.
      path_start [N]     the row's ancestors by depth, itself last, are the first
                         ``position - committed + 1`` entries of ``paths`` from here
    paths [P]            cache rows; rows of one chain share a path; P <= ((N + 1) / 2) ** 2
    Per sequence:
      slot [B], committed [B], pending_bank [B]
      row_offset [B + 1] first row of each sequence
      pending_state [L, B], pending_window [L, B]
    Schedule (core/schedule.py), chains in wave order; C <= N:
      chain_rows [N], chain_offset [C + 1], chain_sequence [C], chain_source [C]
      wave_offset [W + 1]  first chain of each wave, then C
      boundary_of_row [N]
    counts [4]           N, B, C, W again, for kernels that are launched for more
    Host integers, for kernels that are launched to measure: n_rows, n_sequences, and n_keys: no row
    attends to more positions (0: as many as the cache has room for).
    """

    tokens: Any
    sequence: Any
    parent: Any
    position: Any
    kv_row: Any
    path_start: Any
    paths: Any
    slot: Any
    committed: Any
    pending_bank: Any
    row_offset: Any
    pending_state: Any
    pending_window: Any
    chain_rows: Any
    chain_offset: Any
    chain_sequence: Any
    chain_source: Any
    wave_offset: Any
    boundary_of_row: Any
    counts: Any
    n_rows: int
    n_sequences: int
    n_keys: int = 0


@dataclass(frozen=True)
class CommitPlan:
    """What accepted paths must copy, for those of B sequences whose path is no prefix of the node
    order (the others only rotate their banks). int32 arrays, as in :class:`StepPlan`.

    slot, source_bank [B]; the factors go to entries 0, 1, ... of the other bank
    node_offset [B + 1], nodes [M]               distinct entries of the source bank, in path order
    move_offset [B + 1], move_from, move_to [P]  rows of the KV cache and of captured features; per
                                                 sequence both ascend and move_to < move_from
    Host integers: n_rows = M, n_sequences = B.
    """

    slot: Any
    source_bank: Any
    node_offset: Any
    nodes: Any
    move_offset: Any
    move_from: Any
    move_to: Any
    n_rows: int
    n_sequences: int


Plan = TypeVar("Plan", StepPlan, CommitPlan)


def map_arrays(plan: Plan, convert: Callable[[str, Int32], Any]) -> Plan:
    """The same plan with each array replaced by ``convert(name, array)``: the upload."""
    changed = {
        field.name: convert(field.name, getattr(plan, field.name))
        for field in fields(plan)
        if isinstance(getattr(plan, field.name), np.ndarray)
    }
    return replace(plan, **changed)


def _int32(values: Sequence[Any] | Sequence[Sequence[int]]) -> Int32:
    return np.asarray(values, dtype=np.int32)


def _shared_paths(
    forest: Forest, schedule: Schedule, kv_row: list[int]
) -> tuple[list[int], list[int]]:
    """Cache rows from the root to each chain's last row, and where each row's path starts.

    All rows of a chain are ancestors of its last row, so one path serves them all.
    """
    paths: list[int] = []
    starts = [0] * forest.rows
    for chain in schedule.chains:
        offset = forest.offsets[chain.sequence]
        tip = chain.rows[-1] - offset
        for row in chain.rows:
            starts[row] = len(paths)
        paths.extend(kv_row[offset + node] for node in forest.trees[chain.sequence].path_to(tip))
    return paths, starts


def build_plan(forest: Forest, places: Sequence[Place]) -> StepPlan:
    """Lay out one step. ``places[b]`` belongs to ``forest.trees[b]``."""
    schedule = heavy_light(forest)
    sequence: list[int] = []
    parent: list[int] = []
    position: list[int] = []
    kv_row: list[int] = []
    for b, (tree, place) in enumerate(zip(forest.trees, places, strict=True)):
        offset = forest.offsets[b]
        sequence += [b] * len(tree)
        parent += [-1] + [offset + p for p in tree.parents[1:]]
        position += [place.committed + depth for depth in tree.depths]
        kv_row += range(place.committed, place.committed + len(tree))
    paths, path_start = _shared_paths(forest, schedule, kv_row)
    chain_offset = [0]
    for chain in schedule.chains:
        chain_offset.append(chain_offset[-1] + len(chain.rows))
    # explicit: a model without recurrent layers leaves nothing to infer the shape from
    by_layer = (len(places), len(places[0].pending_state))
    return StepPlan(
        tokens=_int32([t for tree in forest.trees for t in tree.tokens]),
        sequence=_int32(sequence),
        parent=_int32(parent),
        position=_int32(position),
        kv_row=_int32(kv_row),
        path_start=_int32(path_start),
        paths=_int32(paths),
        slot=_int32([p.slot for p in places]),
        committed=_int32([p.committed for p in places]),
        pending_bank=_int32([p.pending_bank for p in places]),
        row_offset=_int32(forest.offsets),
        pending_state=_int32([p.pending_state for p in places]).reshape(by_layer).T.copy(),
        pending_window=_int32([p.pending_window for p in places]).reshape(by_layer).T.copy(),
        chain_rows=_int32([row for chain in schedule.chains for row in chain.rows]),
        chain_offset=_int32(chain_offset),
        chain_sequence=_int32([chain.sequence for chain in schedule.chains]),
        chain_source=_int32([chain.source for chain in schedule.chains]),
        wave_offset=_int32(schedule.wave_offsets),
        boundary_of_row=_int32(schedule.boundary_of_row),
        counts=_int32(
            [
                forest.rows,
                len(forest.trees),
                len(schedule.chains),
                len(schedule.wave_offsets) - 1,
            ]
        ),
        n_rows=forest.rows,
        n_sequences=len(forest.trees),
        n_keys=max(position) + 1,
    )


def build_commit_plan(items: Sequence[tuple[int, int, BankMove]]) -> CommitPlan:
    """Lay out the copies of a commit: (slot, committed positions, move) of each sequence."""
    nodes = [move.gather for _, _, move in items]
    moves = [[(a + length, b + length) for a, b in move.moves] for _, length, move in items]
    flat = [pair for pairs in moves for pair in pairs]
    return CommitPlan(
        slot=_int32([slot for slot, _, _ in items]),
        source_bank=_int32([move.source_bank for _, _, move in items]),
        node_offset=_int32([0, *accumulate(map(len, nodes))]),
        nodes=_int32([node for path in nodes for node in path]),
        move_offset=_int32([0, *accumulate(map(len, moves))]),
        move_from=_int32([source for source, _ in flat]),
        move_to=_int32([target for _, target in flat]),
        n_rows=sum(map(len, nodes)),
        n_sequences=len(items),
    )
