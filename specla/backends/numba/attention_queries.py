"""Attention of the queries of one unit over one block: which take part, two or four at a time.

Queries are numbered within the unit, row by row; ``members`` lists those that see a block, and has
one entry more than there are queries: the number of a row for results that nobody wants.
"""

from __future__ import annotations

from typing import Any

from specla.backends.numba.attention_blocks import KEYS, PAGE, find_entries, mix, score
from specla.backends.numba.jit import device, routine


@device
def list_members(
    members: Any, rows: Any, begin: int, end: int, first: int, group: int, position: Any, start: int
) -> int:
    """The queries of rows[begin:end] that see position ``start``; how many."""
    count = 0
    for index in range(begin, end):
        if position[rows[index]] >= start:
            for g in range(group):
                members[count] = (rows[index] - first) * group + g
                count += 1
    return count


@device
def _pick(members: Any, count: int, m: int) -> Any:
    """Member m and where its results go; the last query again, results to nobody, beyond those."""
    if m < count:
        return members[m], members[m]
    return members[count - 1], members.shape[0] - 1


@routine
def score_members(
    cache: Any,
    entries: Any,
    n_entries: int,
    known: int,
    members: Any,
    count: int,
    queries: int,
    width: int,
    scale: Any,
    scores: int,
    step: int,
    room: int,
) -> None:
    """Scores of a block's entries, four queries at a time; step: bytes from query to query."""
    size = 4 * width
    for begin in range(0, n_entries, KEYS):
        end = min(begin + KEYS, n_entries)
        for m in range(0, count, 4):
            q0, to0 = _pick(members, count, m)
            q1, to1 = _pick(members, count, m + 1)
            q2, to2 = _pick(members, count, m + 2)
            q3, to3 = _pick(members, count, m + 3)
            score(
                cache,
                queries + size * q0,
                queries + size * q1,
                queries + size * q2,
                queries + size * q3,
                entries,
                begin,
                end,
                known if m == 0 else 0,
                width,
                scale,
                scores + step * to0,
                scores + step * to1,
                scores + step * to2,
                scores + step * to3,
                room,
            )


@routine
def mix_members(
    members: Any,
    count: int,
    first_row: int,
    group: int,
    position: Any,
    start: int,
    values: int,
    scores: int,
    step: int,
    mixed: int,
    mixed_step: int,
    masks: int,
    room: int,
) -> None:
    """Mix a loaded tile of the block from ``start`` into the outputs, two queries at a time."""
    for m in range(0, count, 2):
        q0, to0 = _pick(members, count, m)
        q1, to1 = _pick(members, count, m + 1)
        seen0 = min(PAGE, position[first_row + q0 // group] + 1 - start)
        seen1 = min(PAGE, position[first_row + q1 // group] + 1 - start)
        mask0 = mask1 = 0
        if seen0 < PAGE or seen1 < PAGE:
            mask0, mask1 = masks + 4 * (PAGE - seen0), masks + 4 * (PAGE - seen1)
        p0, p1 = scores + step * q0 + 4 * start, scores + step * q1 + 4 * start
        mix(p0, p1, mask0, mask1, values, mixed + mixed_step * to0, mixed + mixed_step * to1, room)


@device
def find_two(
    entries: Any,
    padded: Any,
    cache: Any,
    table: Any,
    head: int,
    committed: int,
    paths: Any,
    path: int,
    first: int,
    start: int,
    stop: int,
) -> int:
    """Entries of the block from ``start``, and of the next, which can then be asked for in time.

    first: where the loop over blocks began. Returns how many entries are known.
    """
    upto = min(stop, start + PAGE)
    if start == first or padded.shape[0]:
        find_entries(entries, 0, padded, cache, table, head, committed, paths, path, start, upto)
    else:
        for j in range(PAGE):
            entries[j] = entries[PAGE + j]
    if padded.shape[0]:
        return upto - start
    last = min(stop, upto + PAGE)
    find_entries(entries, PAGE, padded, cache, table, head, committed, paths, path, upto, last)
    return last - start
