"""Attention over the paged KV cache, split over blocks of 64 logical positions.

Three launches. The first writes all scores and the maximum of each block; the second turns a
block's scores into its part of both sums; the third adds the parts in ascending order and divides
(docs/arithmetic.md, section 6). No block waits for another within a launch.

What lies between the launches grows with rows times context, so many rows over a long context are
taken in slices; a row knows nothing of the others, so no bit depends on the cut.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.pools import KvPool
from specla.backends.triton.elementary import div, exp
from specla.backends.triton.launch import launch
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.sums import BLOCK, LOG_BLOCK, halves, halves_of_rows
from specla.core.paging import PAGE
from specla.core.plan import StepPlan

SCRATCH_BYTES = 256 << 20
"""Most memory between the launches, if more than one row would need it."""
MOST_POSITIONS = 65_535 * BLOCK
"""A GPU launches no more blocks of keys: the limit of a grid's third axis."""
TOPS = 128
"""Maxima of blocks that a program compares at a time."""


@triton.jit
def _places(
    logical, inside, row, b, committed, path_start, paths, slots, table, pages_per_slot,
    PAGE: tl.constexpr,
):  # fmt: skip
    """Where the keys of logical positions lie in a layer: page * PAGE + offset, int64."""
    base = tl.load(committed + b)
    path = paths + tl.load(path_start + row) - base
    beyond = inside & (logical >= base)
    cache_row = tl.where(beyond, tl.load(path + logical, beyond, 0), logical)
    at = table + tl.load(slots + b) * pages_per_slot + cache_row // PAGE
    page = tl.load(at, inside, 0)
    return page.to(tl.int64) * PAGE + cache_row % PAGE


@triton.jit(do_not_specialize=["start", "first", "blocks"])
def _score(
    q, keys, scores, tops, sequence, position, committed, path_start, paths, slots, table, counts,
    start, pages_per_slot, first, heads, group, dim, blocks, scale,
    LOG: tl.constexpr, LOG_BLOCK: tl.constexpr, PAGE: tl.constexpr,
):  # fmt: skip
    BLOCK: tl.constexpr = 2**LOG_BLOCK
    row, head, block = start + tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if row >= tl.load(counts):
        return
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
    line = tl.program_id(0) * heads + head
    tl.store(scores + (line * blocks + block) * BLOCK + tl.arange(0, BLOCK), score, inside)
    tl.store(tops + line * blocks + block, tl.max(tl.where(inside, score, float("-inf")), 0))


@triton.jit(do_not_specialize=["start", "first", "blocks"])
def _mix(
    values, scores, tops, weights, parts, sequence, position, committed, path_start, paths, slots,
    table, counts, start, pages_per_slot, first, heads, group, dim, blocks,
    LOG: tl.constexpr, LOG_BLOCK: tl.constexpr, PAGE: tl.constexpr, TOPS: tl.constexpr,
):  # fmt: skip
    BLOCK: tl.constexpr = 2**LOG_BLOCK
    row, head, block = start + tl.program_id(0), tl.program_id(1), tl.program_id(2)
    if row >= tl.load(counts):
        return
    seen = tl.load(position + row) + 1
    if block * BLOCK >= seen:
        return
    b = tl.load(sequence + row)
    j, i = block * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 2**LOG)
    inside = j < seen
    line = tl.program_id(0) * heads + head
    top = float("-inf")
    used = (seen + BLOCK - 1) // BLOCK
    for some in range(0, used, TOPS):
        each = some + tl.arange(0, TOPS)
        their = tl.load(tops + line * blocks + each, each < used, float("-inf"))
        top = tl.maximum(top, tl.max(their, 0))
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


@triton.jit(do_not_specialize=["start", "blocks"])
def _combine(
    weights, parts, out, position, counts, start, heads, dim, blocks,
    LOG: tl.constexpr, LOG_BLOCK: tl.constexpr,
):  # fmt: skip
    BLOCK: tl.constexpr = 2**LOG_BLOCK
    row, head = start + tl.program_id(0), tl.program_id(1)
    if row >= tl.load(counts):
        return
    i = tl.arange(0, 2**LOG)
    line = tl.program_id(0) * heads + head
    mixed = tl.zeros([2**LOG], tl.float32)
    total = tl.zeros([2**LOG], tl.float32)
    seen = (tl.load(position + row) + BLOCK) // BLOCK
    for block in range(seen):
        at = line * blocks + block
        mixed = mixed + tl.load(parts + at.to(tl.int64) * dim + i, i < dim, 0.0)
        total = total + tl.load(weights + at)
    tl.store(out + (row * heads + head) * dim + i, div(mixed, total), i < dim)


@triton.jit
def own_place(row, sequence, kv_row, slots, table, pages_per_slot, PAGE: tl.constexpr):
    """Where a row's own key and value go, likewise."""
    cache_row = tl.load(kv_row + row)
    slot = tl.load(slots + tl.load(sequence + row))
    page = tl.load(table + slot * pages_per_slot + cache_row // PAGE)
    return page.to(tl.int64) * PAGE + cache_row % PAGE


@triton.jit(do_not_specialize=["first"])
def _kv_write(
    k, v, keys, values, sequence, kv_row, slots, table, counts, pages_per_slot, first, width,
    PAGE: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, i = tl.program_id(0), tl.arange(0, SIZE)
    if row >= tl.load(counts):
        return
    place = first + own_place(row, sequence, kv_row, slots, table, pages_per_slot, PAGE)
    at = place * width + i
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
        blocks = -(-(plan.n_keys or kv.shape.context) // BLOCK)
        bytes_of_row = 4 * heads * blocks * (BLOCK + 2 + dim)
        rows = min(n, max(1, SCRATCH_BYTES // bytes_of_row))
        for start in range(0, n, rows):
            self._attend(q, kv, layer, plan, scale, out, start, min(rows, n - start), blocks)

    def _attend(
        self,
        q: Any,
        kv: KvPool,
        layer: int,
        plan: StepPlan,
        scale: float,
        out: Any,
        start: int,
        rows: int,
        blocks: int,
    ) -> None:
        """Of ``rows`` rows from ``start`` on."""
        _, heads, dim = q.shape
        room = self._scratch.floats
        scores = room("attention scores", rows, heads, blocks, BLOCK)
        tops = room("attention tops", rows, heads, blocks)
        weights = room("attention weights", rows, heads, blocks)
        parts = room("attention parts", rows, heads, blocks, dim)
        meta = {"LOG": (dim - 1).bit_length(), "LOG_BLOCK": LOG_BLOCK}
        where = (
            *(plan.sequence, plan.position, plan.committed, plan.path_start, plan.paths),
            *(plan.slot, kv.page_table, plan.counts, start, kv.shape.pages_per_slot),
            *(layer * kv.shape.pages * PAGE, heads, heads // kv.shape.heads, dim, blocks),
        )
        grid = (rows, heads, blocks)
        launch(_score, grid, q, kv.key, scores, tops, *where, scale, **meta, PAGE=PAGE)
        summing = (kv.value, scores, tops, weights, parts, *where)
        # wide heads on few warps spill registers on some GPUs
        launch(_mix, grid, *summing, warps=4 if dim <= 128 else 8, **meta, PAGE=PAGE, TOPS=TOPS)
        totals = (weights, parts, out, plan.position, plan.counts, start, heads, dim, blocks)
        launch(_combine, (rows, heads), *totals, **meta)

    def kv_write(self, k: Any, v: Any, kv: KvPool, layer: int, plan: StepPlan) -> None:
        width = k.shape[1] * k.shape[2]
        arguments = (
            *(k, v, kv.key, kv.value, plan.sequence, plan.kv_row, plan.slot, kv.page_table),
            *(plan.counts, kv.shape.pages_per_slot, layer * kv.shape.pages * PAGE, width),
        )
        size = int(triton.next_power_of_2(width))
        launch(_kv_write, (plan.n_rows,), *arguments, PAGE=PAGE, SIZE=size)
