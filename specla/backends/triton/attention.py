"""Attention over the paged KV cache, split over blocks of 64 logical positions.

Three launches. The first writes all scores and the maximum of each block; the second turns a
block's scores into its part of both sums; the third adds the parts in ascending order and divides
(docs/arithmetic.md, section 6). No block waits for another within a launch.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.pools import KvPool
from specla.backends.triton.elementary import div, exp
from specla.backends.triton.launch import launch
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.sums import halves, halves_of_rows
from specla.core.paging import PAGE
from specla.core.plan import StepPlan

BLOCK = 64
LOG_BLOCK = 6


@triton.jit
def _places(
    logical, inside, row, b, committed, path_start, paths, slots, table, pages_per_slot,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Where the keys of logical positions lie: page * PAGE + offset, int64."""
    base = tl.load(committed + b)
    path = paths + tl.load(path_start + row) - base
    beyond = inside & (logical >= base)
    cache_row = tl.where(beyond, tl.load(path + logical, beyond, 0), logical)
    at = table + tl.load(slots + b) * pages_per_slot + cache_row // PAGE
    page = tl.load(at, inside, 0)
    return page.to(tl.int64) * PAGE + cache_row % PAGE


@triton.jit
def _score(
    q, keys, scores, tops, sequence, position, committed, path_start, paths, slots, table,
    pages_per_slot, first, heads, group, dim, blocks, scale,
    LOG: tl.constexpr, BLOCK: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    row, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    seen = tl.load(position + row) + 1
    if block * BLOCK >= seen:
        return
    b = tl.load(sequence + row)
    j, i = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 2**LOG)
    inside = j < seen
    place = first + _places(
        j, inside, row, b, committed, path_start, paths, slots, table, pages_per_slot, PAGE
    )
    kv_heads = heads // group
    at = keys + (place * kv_heads + head // group)[:, None] * dim + i[None, :]
    k = tl.load(at, inside[:, None] & (i < dim)[None, :], 0.0).to(tl.float32)
    query = tl.load(q + (row * heads + head) * dim + i, i < dim, 0.0)
    # what pads a head is +0.0 in k and in q: so is its product
    score = halves(query[None, :] * k, LOG, BLOCK) * scale
    line = row * heads + head
    tl.store(scores + (line * blocks + block) * BLOCK + tl.arange(0, BLOCK), score, inside)
    tl.store(tops + line * blocks + block, tl.max(tl.where(inside, score, float("-inf")), 0))


@triton.jit
def _mix(
    values, scores, tops, weights, parts, sequence, position, committed, path_start, paths, slots,
    table, pages_per_slot, first, heads, group, dim, blocks,
    LOG: tl.constexpr, BLOCK: tl.constexpr, LOG_BLOCK: tl.constexpr, PAGE: tl.constexpr,
    MOST: tl.constexpr,
):  # fmt: skip
    row, head, block = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    seen = tl.load(position + row) + 1
    if block * BLOCK >= seen:
        return
    b = tl.load(sequence + row)
    j, i = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 2**LOG)
    inside = j < seen
    line = row * heads + head
    each = tl.arange(0, MOST)
    used = each < (seen + BLOCK - 1) // BLOCK
    top = tl.max(tl.load(tops + line * blocks + each, used, float("-inf")), 0)
    score = tl.load(scores + (line * blocks + block) * BLOCK + tl.arange(0, BLOCK), inside, 0.0)
    p = tl.where(inside, exp(score - top), 0.0)
    place = first + _places(
        j, inside, row, b, committed, path_start, paths, slots, table, pages_per_slot, PAGE
    )
    kv_heads = heads // group
    at = values + (place * kv_heads + head // group)[:, None] * dim + i[None, :]
    v = tl.load(at, inside[:, None] & (i < dim)[None, :], 0.0).to(tl.float32)
    mixed = halves_of_rows(tl.where(inside[:, None], p[:, None] * v, 0.0), LOG_BLOCK, 2**LOG)
    total = halves(tl.reshape(p, [1, BLOCK]), LOG_BLOCK, 1)
    tl.store(parts + (line * blocks + block).to(tl.int64) * dim + i, mixed, i < dim)
    tl.store(weights + line * blocks + block + tl.arange(0, 1), total)


@triton.jit
def _combine(
    weights, parts, out, position, heads, dim, blocks, LOG: tl.constexpr, BLOCK: tl.constexpr
):
    row, head = tl.program_id(0), tl.program_id(1)
    i = tl.arange(0, 2**LOG)
    line = row * heads + head
    mixed = tl.zeros([2**LOG], tl.float32)
    total = tl.zeros([2**LOG], tl.float32)
    for block in range((tl.load(position + row) + BLOCK) // BLOCK):
        at = line * blocks + block
        mixed = mixed + tl.load(parts + at.to(tl.int64) * dim + i, i < dim, 0.0)
        total = total + tl.load(weights + at)
    tl.store(out + line * dim + i, div(mixed, total), i < dim)


@triton.jit
def _kv_write(
    k, v, keys, values, sequence, kv_row, slots, table, counts, pages_per_slot, first, width,
    PAGE: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    if row >= tl.load(counts):
        return
    cache_row = tl.load(kv_row + row)
    slot = tl.load(slots + tl.load(sequence + row))
    page = tl.load(table + slot * pages_per_slot + cache_row // PAGE)
    at = (first + page.to(tl.int64) * PAGE + cache_row % PAGE) * width + i
    # stores round to the cache's type, ties to even
    tl.store(
        keys + at, tl.load(k + row * width + i, i < width).to(keys.dtype.element_ty), i < width
    )
    tl.store(
        values + at, tl.load(v + row * width + i, i < width).to(values.dtype.element_ty), i < width
    )


class Attention:
    """These kernels as methods of the protocol."""

    _scratch: Scratch

    def attention(
        self, q: Any, kv: KvPool, layer: int, plan: StepPlan, scale: float, out: Any
    ) -> None:
        n, heads, dim = q.shape
        group = heads // kv.shape.heads
        blocks = -(-(plan.n_keys or kv.shape.context) // BLOCK)
        room = self._scratch.floats
        scores = room("attention scores", n, heads, blocks, BLOCK)
        tops = room("attention tops", n, heads, blocks)
        weights = room("attention weights", n, heads, blocks)
        parts = room("attention parts", n, heads, blocks, dim)
        meta = {"LOG": (dim - 1).bit_length(), "BLOCK": BLOCK}
        where = (
            *(plan.sequence, plan.position, plan.committed, plan.path_start, plan.paths),
            *(plan.slot, kv.page_table, kv.shape.pages_per_slot, layer * kv.shape.pages * PAGE),
        )
        sizes, grid = (heads, group, dim, blocks), (n, heads, blocks)
        launch(_score, grid, q, kv.key, scores, tops, *where, *sizes, scale, **meta, PAGE=PAGE)
        launch(
            _mix,
            grid,
            *(kv.value, scores, tops, weights, parts, *where, *sizes),
            **meta,
            PAGE=PAGE,
            LOG_BLOCK=LOG_BLOCK,
            MOST=int(triton.next_power_of_2(blocks)),
        )
        launch(_combine, (n, heads), weights, parts, out, plan.position, heads, dim, blocks, **meta)

    def kv_write(self, k: Any, v: Any, kv: KvPool, layer: int, plan: StepPlan) -> None:
        width = k.shape[1] * k.shape[2]
        arguments = (
            *(k, v, kv.key, kv.value, plan.sequence, plan.kv_row, plan.slot, kv.page_table),
            *(plan.counts, kv.shape.pages_per_slot, layer * kv.shape.pages * PAGE, width),
        )
        size = int(triton.next_power_of_2(width))
        launch(_kv_write, (plan.n_rows,), *arguments, PAGE=PAGE, SIZE=size)
