"""Attention over the paged KV cache: committed positions, then each row's own ancestors.

The unit of work is one KV head of one sequence. Full blocks of committed positions are the same
for all its rows and are read once; the blocks after them are read once per chain of the schedule,
whose rows see prefixes of one path.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.attention_blocks import (
    PAGE,
    load_keys,
    load_values,
    mix,
    score,
    softmax,
)
from specla.backends.numba.jit import Kernel, device, kernel, routine
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.sums import power_of_two
from specla.backends.numba.tile_code import TILE, address

_INDEX = "int32[::1]"


@device
def _block_of_run(
    scoring: bool,
    q: Any,
    first_head: int,
    group: int,
    rows: Any,
    begin: int,
    end: int,
    first_row: int,
    position: Any,
    start: int,
    loaded: Any,
    scale: Any,
    scores: Any,
    mixed: Any,
    partial: Any,
) -> None:
    """Score one loaded block against the rows rows[begin:end], or mix it into their outputs."""
    for index in range(begin, end):
        row = rows[index]
        count = min(PAGE, position[row] + 1 - start)
        if count <= 0:
            continue
        for g in range(group):
            query = (row - first_row) * group + g
            if scoring:
                at = address(q[row, first_head + g])
                score(at, q.shape[2], loaded, scale, scores, query, start, partial)
            else:
                mix(scores, query, start, loaded, count, mixed, partial)


@routine
def _attend(
    q: Any,
    key: Any,
    value: Any,
    table: Any,
    head: int,
    committed: int,
    first_row: int,
    last_row: int,
    sequence: int,
    position: Any,
    path_start: Any,
    paths: Any,
    chain_rows: Any,
    chain_offset: Any,
    chain_sequence: Any,
    scale: Any,
    out: Any,
) -> None:
    """One KV head of one sequence, all its rows. Queries are numbered row by row."""
    dim = q.shape[2]
    group = q.shape[1] // key.shape[2]
    first_head = head * group
    queries = (last_row - first_row) * group
    longest = 0
    for row in range(first_row, last_row):
        longest = max(longest, position[row] + 1)
    blocks = (longest + PAGE - 1) // PAGE
    shared = committed // PAGE * PAGE
    tiles = (dim + TILE - 1) // TILE
    scores = np.empty((queries, blocks * PAGE), np.float32)
    mixed = np.zeros((queries, tiles * TILE), np.float32)
    sums = np.empty(queries, np.float32)
    by_rows = dim == 64 or dim == 128 or dim == 256
    keys = np.empty((PAGE, 1, dim) if by_rows else (PAGE // TILE, dim, TILE), np.float32)
    values = np.zeros((tiles, PAGE, TILE), np.float32)
    partial = np.empty((max(power_of_two(dim), PAGE), TILE), np.float32)
    scratch = np.empty(PAGE, np.float32)
    everybody = np.arange(first_row, last_row).astype(np.int32)

    for scoring in (True, False):
        if not scoring:
            for query in range(queries):
                n = position[first_row + query // group] + 1
                sums[query] = softmax(scores, query, n, scratch)
        # turn -1 is for the blocks that all rows share
        for chain in range(-1, chain_sequence.shape[0]):
            if chain < 0:
                rows, begin, end = everybody, 0, last_row - first_row
                first, stop, path = 0, shared, 0
            elif chain_sequence[chain] == sequence:
                rows, begin, end = chain_rows, chain_offset[chain], chain_offset[chain + 1]
                first, stop = shared, position[rows[end - 1]] + 1
                path = path_start[rows[begin]]
            else:
                continue
            for start in range(first, stop, PAGE):
                upto = min(stop, start + PAGE)
                if scoring:
                    load_keys(keys, key, table, head, committed, paths, path, start, upto)
                else:
                    load_values(values, value, table, head, committed, paths, path, start, upto)
                loaded = keys if scoring else values
                _block_of_run(
                    scoring,
                    q,
                    first_head,
                    group,
                    rows,
                    begin,
                    end,
                    first_row,
                    position,
                    start,
                    loaded,
                    scale,
                    scores,
                    mixed,
                    partial,
                )

    for query in range(queries):
        y = contiguous(out[first_row + query // group, first_head + query % group])
        for i in range(dim):
            y[i] = mixed[query, i] / sums[query]


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
    """See Backend.attention, for units first..last of sequences * KV heads."""
    heads = key.shape[3]
    for unit in range(first_unit, last_unit):
        b, head = unit // heads, unit % heads
        _attend(
            q,
            key[layer],
            value[layer],
            page_table[slot[b]],
            head,
            committed[b],
            row_offset[b],
            row_offset[b + 1],
            b,
            position,
            path_start,
            paths,
            chain_rows,
            chain_offset,
            chain_sequence,
            scale,
            out,
        )


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
