"""Rows that an accepted path moves onto the spine, and rows of captured features.

Moves ascend and go down (to < from), so a program that makes them one after another for its own
columns reads every row before it is written.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.pools import FeaturePool, KvPool
from specla.backends.triton.launch import launch
from specla.core.paging import PAGE
from specla.core.plan import CommitPlan, StepPlan


@triton.jit
def _kv_move(
    keys, values, slots, move_offset, move_from, move_to, table, pages_per_slot, pages, width,
    PAGE: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    b, layer, i = tl.program_id(0), tl.program_id(1), tl.arange(0, SIZE)
    mine = table + tl.load(slots + b) * pages_per_slot
    for move in range(tl.load(move_offset + b), tl.load(move_offset + b + 1)):
        source, target = tl.load(move_from + move), tl.load(move_to + move)
        page = layer * pages + tl.load(mine + source // PAGE)
        read = (page.to(tl.int64) * PAGE + source % PAGE) * width + i
        page = layer * pages + tl.load(mine + target // PAGE)
        write = (page.to(tl.int64) * PAGE + target % PAGE) * width + i
        tl.store(keys + write, tl.load(keys + read, i < width), i < width)
        tl.store(values + write, tl.load(values + read, i < width), i < width)


@triton.jit(do_not_specialize=["index"])
def _feature_write(
    x, rows, sequence, kv_row, slots, counts, context, count, index, width, SIZE: tl.constexpr
):
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    if row >= tl.load(counts):
        return
    slot = tl.load(slots + tl.load(sequence + row)).to(tl.int64)
    at = ((slot * context + tl.load(kv_row + row)) * count + index) * width + i
    tl.store(rows + at, tl.load(x + row * width + i, i < width), i < width)


@triton.jit
def _feature_move(rows, slots, move_offset, move_from, move_to, context, width, SIZE: tl.constexpr):
    b, i = tl.program_id(0), tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    first = tl.load(slots + b).to(tl.int64) * context
    for move in range(tl.load(move_offset + b), tl.load(move_offset + b + 1)):
        read = (first + tl.load(move_from + move)) * width + i
        write = (first + tl.load(move_to + move)) * width + i
        tl.store(rows + write, tl.load(rows + read, i < width), i < width)


class Moves:
    """These kernels as methods of the protocol."""

    def kv_move(self, kv: KvPool, commit: CommitPlan) -> None:
        s, width = kv.shape, kv.shape.heads * kv.shape.head_dim
        arguments = (
            *(kv.key, kv.value, commit.slot, commit.move_offset, commit.move_from),
            *(commit.move_to, kv.page_table, s.pages_per_slot, s.pages, width),
        )
        size = int(triton.next_power_of_2(width))
        launch(_kv_move, (commit.n_sequences, s.layers), *arguments, PAGE=PAGE, SIZE=size)

    def feature_write(self, x: Any, features: FeaturePool, index: int, plan: StepPlan) -> None:
        _, context, count, width = features.rows.shape
        arguments = (x, features.rows, plan.sequence, plan.kv_row, plan.slot, plan.counts)
        size = int(triton.next_power_of_2(width))
        launch(_feature_write, (plan.n_rows,), *arguments, context, count, index, width, SIZE=size)

    def feature_move(self, features: FeaturePool, commit: CommitPlan) -> None:
        _, context, count, width = features.rows.shape
        arguments = (
            *(features.rows, commit.slot, commit.move_offset, commit.move_from, commit.move_to),
            *(context, count * width),
        )
        size = min(1024, int(triton.next_power_of_2(count * width)))
        grid = (commit.n_sequences, triton.cdiv(count * width, size))
        launch(_feature_move, grid, *arguments, SIZE=size)
