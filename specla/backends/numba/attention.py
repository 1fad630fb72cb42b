"""Attention over the paged KV cache: committed positions, then each row's own ancestors.

The unit of work is one KV head of a few rows of one sequence. Full blocks of committed positions
are the same for all its rows and are read once; the blocks after them are read once per chain of
the schedule, whose rows see prefixes of one path. A query is one query head of one row.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.attention_blocks import (
    PAGE,
    ROOM,
    TILE,
    TILE_BYTES,
    ZERO,
    load_values,
    softmax,
)
from specla.backends.numba.attention_code import GROUP_BYTES
from specla.backends.numba.attention_queries import (
    find_two,
    list_members,
    mix_members,
    score_members,
)
from specla.backends.numba.jit import Kernel, device, kernel, routine
from specla.backends.numba.primitives import contiguous, keep
from specla.backends.numba.sums import power_of_two
from specla.backends.numba.vector_code import address

QUERIES = 32
"""Queries of a unit: enough to make much of each key, few enough to stay in a core's cache."""
_INDEX = "int32[::1]"


def rows_of_unit(query_heads: int, heads: int) -> int:
    """Rows of one sequence in a unit."""
    return max(1, QUERIES * heads // query_heads)


def units(n_rows: int, n_sequences: int, query_heads: int, heads: int) -> int:
    """Units of a step: as many as the least favourable lengths of its sequences need."""
    rows = rows_of_unit(query_heads, heads)
    return (n_rows + n_sequences * (rows - 1)) // rows * heads


@device
def _run_of_rows(run: int, most: int, row_offset: Any) -> Any:
    """Sequence, first row and last row of the ``run``-th run of up to ``most`` rows.

    Empty when there are fewer, which is so where ``units`` had to expect worse.
    """
    for b in range(row_offset.shape[0] - 1):
        first, last = row_offset[b], row_offset[b + 1]
        runs = (last - first + most - 1) // most
        if run < runs:
            return b, first + run * most, min(first + (run + 1) * most, last)
        run -= runs
    return 0, 0, 0


@device
def _cut(rows: Any, begin: int, end: int, first_row: int, last_row: int) -> Any:
    """The part of rows[begin:end], which ascend, that lies in first_row..last_row."""
    while begin < end and rows[begin] < first_row:
        begin += 1
    while begin < end and rows[end - 1] >= last_row:
        end -= 1
    return begin, end


@routine
def _pass(
    scoring: bool,
    cache: Any,
    table: Any,
    head: int,
    committed: int,
    first_row: int,
    last_row: int,
    group: int,
    sequence: int,
    position: Any,
    path_start: Any,
    paths: Any,
    chain_rows: Any,
    chain_offset: Any,
    chain_sequence: Any,
    scale: Any,
    queries: Any,
    entries: Any,
    padded: Any,
    values: Any,
    scores: Any,
    mixed: Any,
    masks: Any,
    room: Any,
    members: Any,
    everybody: Any,
) -> None:
    """Score all blocks against all queries, or mix them into all outputs."""
    width, step = queries.shape[1], 4 * scores.shape[1]
    shared = committed // PAGE * PAGE
    # turn -1 is for the blocks that all rows share
    for chain in range(-1, chain_sequence.shape[0]):
        if chain < 0:
            rows, begin, end = everybody, first_row, last_row
            first, stop, path = 0, shared, 0
        elif chain_sequence[chain] == sequence:
            rows, begin, end = chain_rows, chain_offset[chain], chain_offset[chain + 1]
            begin, end = _cut(rows, begin, end, first_row, last_row)
            if begin == end:
                continue
            first, stop = shared, position[rows[end - 1]] + 1
            path = path_start[rows[begin]]
        else:
            continue
        for start in range(first, stop, PAGE):
            upto = min(stop, start + PAGE)
            count = list_members(members, rows, begin, end, first_row, group, position, start)
            known = find_two(
                entries, padded, cache, table, head, committed, paths, path, first, start, stop
            )
            if scoring:
                score_members(
                    cache,
                    entries,
                    upto - start,
                    known,
                    members,
                    count,
                    address(queries),
                    width,
                    scale,
                    address(scores) + 4 * start,
                    step,
                    address(room),
                )
                continue
            for t in range(width // TILE):
                load_values(cache, entries, upto - start, known, t, width // TILE, address(values))
                mix_members(
                    members,
                    count,
                    first_row,
                    group,
                    position,
                    start,
                    address(values),
                    address(scores),
                    step,
                    address(mixed) + TILE_BYTES * t,
                    4 * width,
                    address(masks),
                    address(room),
                )


@routine
def _begin(
    q: Any,
    first_row: int,
    last_row: int,
    head: int,
    group: int,
    queries: Any,
    mixed: Any,
) -> None:
    """Take up a unit's queries, padded; clear what is added to."""
    count = (last_row - first_row) * group
    for query in range(count):
        for i in range(queries.shape[1]):
            queries[query, i] = ZERO
            mixed[query, i] = ZERO
    for row in range(first_row, last_row):
        for g in range(group):
            to, x = queries[(row - first_row) * group + g], contiguous(q[row, head * group + g])
            for i in range(x.shape[0]):
                to[i] = x[i]


@routine
def _finish(
    out: Any, first_row: int, last_row: int, head: int, group: int, mixed: Any, sums: Any
) -> None:
    """The outputs of a unit: one division each."""
    for row in range(first_row, last_row):
        for g in range(group):
            query = (row - first_row) * group + g
            y, x, total = contiguous(out[row, head * group + g]), mixed[query], sums[query]
            for i in range(y.shape[0]):
                y[i] = x[i] / total


def _attention(
    q: Any,
    key: Any,
    value: Any,
    layer: int,
    page_table: Any,
    slot: Any,
    committed: Any,
    row_offset: Any,
    position: Any,
    path_start: Any,
    paths: Any,
    chain_rows: Any,
    chain_offset: Any,
    chain_sequence: Any,
    scale: Any,
    out: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.attention. Unit u: KV head u % heads of the (u // heads)-th run of rows."""
    heads, dim = key.shape[3], q.shape[2]
    group = q.shape[1] // heads
    most = max(1, QUERIES // group)
    n_queries = min(most, q.shape[0]) * group
    longest = 0
    for row in range(position.shape[0]):
        longest = max(longest, position[row] + 1)
    width = max(64, power_of_two(dim))
    queries = np.empty((n_queries, width), np.float32)
    entries, values = np.empty(2 * PAGE, np.int64), np.empty((PAGE, TILE), np.float32)
    padded = np.zeros((PAGE if dim < width else 0, width), key.dtype)
    # one row more, for results that nobody wants
    mixed = np.empty((n_queries + 1, width), np.float32)
    scores = np.empty((n_queries + 1, (longest + PAGE - 1) // PAGE * PAGE), np.float32)
    room = np.empty(ROOM + GROUP_BYTES // 4 * (width // 64), np.float32)
    sums, members = np.empty(n_queries, np.float32), np.empty(n_queries + 1, np.int64)
    everybody = np.empty(position.shape[0], np.int32)
    for row in range(everybody.shape[0]):
        everybody[row] = row
    masks = np.empty(2 * PAGE, np.int32)
    for j in range(PAGE):
        masks[j], masks[PAGE + j] = -1, 0
    for unit in range(first_unit, last_unit):
        head = unit % heads
        b, first_row, last_row = _run_of_rows(unit // heads, most, row_offset)
        if first_row == last_row:
            continue
        _begin(q, first_row, last_row, head, group, queries, mixed)
        for scoring in (True, False):
            _pass(
                scoring,
                key[layer] if scoring else value[layer],
                page_table[slot[b]],
                head,
                committed[b],
                first_row,
                last_row,
                group,
                b,
                position,
                path_start,
                paths,
                chain_rows,
                chain_offset,
                chain_sequence,
                scale,
                queries,
                entries,
                padded,
                values,
                scores,
                mixed,
                masks,
                room,
                members,
                everybody,
            )
            for query in range((last_row - first_row) * group):
                if scoring:
                    n = position[first_row + query // group] + 1
                    sums[query] = softmax(address(scores[query]), n)
        _finish(out, first_row, last_row, head, group, mixed, sums)
    keep(scores)


def _attention_signature(entry: str) -> str:
    caches = ", ".join([f"{entry}[:, :, :, :, ::1]"] * 2)
    indices = ", ".join([_INDEX] * 9)
    return (
        f"void(float32[:, :, :], {caches}, intp, int32[:, ::1], {indices}, float32, "
        "float32[:, :, :], intp, intp)"
    )


attention: dict[str, Kernel] = {
    "f16": kernel(_attention_signature("uint16"))(_attention),
    "f32": kernel(_attention_signature("float32"))(_attention),
}
