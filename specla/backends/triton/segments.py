"""Weight products up to their eight segments: exact integer blocks, or trees of 32 floats.

A row's blocks are cut into 8 segments (docs/arithmetic.md, section 5), and a program sums one of
them for a tile of rows: the split over columns that a GPU wants. What is added then is the business
of endings.py. One launch serves up to MOST matrices of one kind that share their activations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import triton
import triton.language as tl

from specla.backends.base import QuantisedRows, Weight
from specla.backends.triton.launch import INTERPRETED, launch
from specla.backends.triton.matrices import layout_of
from specla.backends.triton.packing import BLOCK
from specla.backends.triton.quants import block_quants, widened
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.sums import halves

SEGMENTS = 8
MOST = 4
ROWS = 512 if INTERPRETED else 64
"""Rows of W that a program takes. A program costs the interpreter as much for few as for many."""
MOST_TOKENS = 64


@triton.jit
def _segment(
    values, scales, sums, partial, n, blocks,
    low_0, high_0, subs_0, minimum_0, scale_0, minimum_scale_0, rows_0, place_0,
    low_1, high_1, subs_1, minimum_1, scale_1, minimum_scale_1, rows_1, place_1,
    low_2, high_2, subs_2, minimum_2, scale_2, minimum_scale_2, rows_2, place_2,
    low_3, high_3, subs_3, minimum_3, scale_3, minimum_scale_3, rows_3, place_3,
    BITS: tl.constexpr, OFFSET: tl.constexpr, SUBS: tl.constexpr, MINIMA: tl.constexpr,
    RUN: tl.constexpr, COUNT: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """One segment of a tile of rows, for a tile of tokens: [8, n, rows] at the matrix's place."""
    tile = tl.program_id(0)
    low, high, subs, minimum = low_0, high_0, subs_0, minimum_0
    scale, minimum_scale, rows = scale_0, minimum_scale_0, rows_0
    # 64 bits: the segments of many tokens' logits are more floats than an int32 counts
    place = tl.cast(place_0, tl.int64)
    first, end = 0, tl.cdiv(rows_0, ROWS)
    if COUNT > 1:
        if tile >= end:
            low, high, subs, minimum = low_1, high_1, subs_1, minimum_1
            scale, minimum_scale, rows = scale_1, minimum_scale_1, rows_1
            place = tl.cast(place_1, tl.int64)
            first = end
        end += tl.cdiv(rows_1, ROWS)
    if COUNT > 2:
        if tile >= end:
            low, high, subs, minimum = low_2, high_2, subs_2, minimum_2
            scale, minimum_scale, rows = scale_2, minimum_scale_2, rows_2
            place = tl.cast(place_2, tl.int64)
            first = end
        end += tl.cdiv(rows_2, ROWS)
    if COUNT > 3:  # noqa: SIM102 (decided when compiling)
        if tile >= end:
            low, high, subs, minimum = low_3, high_3, subs_3, minimum_3
            scale, minimum_scale, rows = scale_3, minimum_scale_3, rows_3
            place = tl.cast(place_3, tl.int64)
            first = end
    r = (tile - first) * ROWS + tl.arange(0, ROWS)
    segment = tl.program_id(1)
    t = tl.program_id(2) * TOKENS + tl.arange(0, TOKENS)
    i = tl.arange(0, 32)
    here = r < rows
    length = (blocks + 7) // 8
    total = tl.zeros([ROWS, TOKENS], tl.float32)
    for block in range(segment * length, tl.minimum((segment + 1) * length, blocks)):
        line = block * rows + r
        w = block_quants(low, high, line, here, BITS, OFFSET, ROWS)
        at = values + t[None, :] * blocks * 32 + block * 32 + i[:, None]
        x = tl.load(at, (t < n)[None, :], 0)
        if SUBS == 2:
            left = tl.dot(w, tl.where((i < 16)[:, None], x, 0).to(tl.int8), out_dtype=tl.int32)
            right = tl.dot(w, tl.where((i < 16)[:, None], 0, x).to(tl.int8), out_dtype=tl.int32)
            whole = left * tl.load(subs + line * 2, here, 0).to(tl.int32)[:, None]
            whole += right * tl.load(subs + line * 2 + 1, here, 0).to(tl.int32)[:, None]
        else:
            whole = tl.dot(w, x, out_dtype=tl.int32)
            if SUBS == 1:
                whole = whole * tl.load(subs + line, here, 0).to(tl.int32)[:, None]
        d = tl.load(scale + block // RUN * rows + r, here, 0.0).to(tl.float32)
        s = tl.load(scales + t * blocks + block, t < n, 0.0)
        term = whole.to(tl.float32) * (d[:, None] * s[None, :])
        if MINIMA:
            of_half = sums + (t * blocks + block) * 2
            x_sum = tl.load(of_half, t < n, 0).to(tl.int32)
            x_sum += tl.load(of_half + 1, t < n, 0).to(tl.int32)
            least = tl.load(minimum + line, here, 0).to(tl.int32)
            offset = (least[:, None] * x_sum[None, :]).to(tl.float32)
            d = tl.load(minimum_scale + block // RUN * rows + r, here, 0.0).to(tl.float32)
            term = term - offset * (d[:, None] * s[None, :])
        total = total + term
    at = partial + place + (segment * n + t).to(tl.int64)[None, :] * rows + r[:, None]
    tl.store(at, total, here[:, None] & (t < n)[None, :])


@triton.jit
def _float_segment(
    x, partial, n, cols, blocks,
    weight_0, rows_0, place_0, weight_1, rows_1, place_1,
    weight_2, rows_2, place_2, weight_3, rows_3, place_3,
    COUNT: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The same for float weights and one token; a block's term is the tree of its products."""
    tile = tl.program_id(0)
    weight, rows, place = weight_0, rows_0, tl.cast(place_0, tl.int64)
    first, end = 0, tl.cdiv(rows_0, ROWS)
    if COUNT > 1:
        if tile >= end:
            weight, rows, place, first = weight_1, rows_1, tl.cast(place_1, tl.int64), end
        end += tl.cdiv(rows_1, ROWS)
    if COUNT > 2:
        if tile >= end:
            weight, rows, place, first = weight_2, rows_2, tl.cast(place_2, tl.int64), end
        end += tl.cdiv(rows_2, ROWS)
    if COUNT > 3:  # noqa: SIM102 (decided when compiling)
        if tile >= end:
            weight, rows, place, first = weight_3, rows_3, tl.cast(place_3, tl.int64), end
    r = (tile - first) * ROWS + tl.arange(0, ROWS)
    segment, t = tl.program_id(1), tl.program_id(2)
    i = tl.arange(0, 32)
    here = r < rows
    length = (blocks + 7) // 8
    total = tl.zeros([ROWS], tl.float32)
    for block in range(segment * length, tl.minimum((segment + 1) * length, blocks)):
        column = block * 32 + i
        v = tl.load(x + t * cols + column, column < cols, 0.0)
        at = weight + r.to(tl.int64)[:, None] * cols + column[None, :]
        w = widened(tl.load(at, here[:, None] & (column < cols)[None, :], 0))
        total = total + halves(w * v[None, :], 5, ROWS)
    tl.store(partial + place + (segment * n + t).to(tl.int64) * rows + r, total, here)


def segments(
    scratch: Scratch, x: QuantisedRows | None, floats: Any, weights: Sequence[Weight]
) -> Any:
    """Segments of x W^T for up to MOST matrices, [8, n, rows] of each one after the other."""
    n = floats.shape[0] if x is None else x.scale.shape[0]
    rows = [weight.source.rows for weight in weights]
    places = [SEGMENTS * n * sum(rows[:i]) for i in range(len(rows))]
    partial = scratch.floats("segments", SEGMENTS * n * sum(rows))
    for form in dict.fromkeys(map(_form, weights)):
        alike = [i for i, weight in enumerate(weights) if _form(weight) == form]
        first = weights[alike[0]]
        members = [(*_arrays(weights[i]), rows[i], places[i]) for i in alike]
        tiles = sum(triton.cdiv(rows[i], ROWS) for i in alike)
        # what a launch has no use for must still be there
        rest = [value for member in (members + members[:1] * MOST)[:MOST] for value in member]
        meta = {"COUNT": len(alike), "ROWS": ROWS}
        if x is not None and first.quantised:
            tokens = min(MOST_TOKENS, max(16, int(triton.next_power_of_2(n))))
            arguments = (x.values, x.scale, x.sums, partial, n, x.scale.shape[1], *rest)
            grid = (tiles, SEGMENTS, triton.cdiv(n, tokens))
            launch(_segment, grid, *arguments, **layout_of(first), **meta, TOKENS=tokens)
        else:
            cols = floats.shape[1]
            arguments = (floats, partial, n, cols, triton.cdiv(cols, BLOCK), *rest)
            launch(_float_segment, (tiles, SEGMENTS, n), *arguments, **meta)
    return partial


def _form(weight: Weight) -> Any:
    """Equal for matrices that one launch can take."""
    return weight.source.kind if weight.quantised else weight.handle.values.dtype


def _arrays(weight: Weight) -> tuple[Any, ...]:
    return tuple(getattr(weight.handle, f.name) for f in fields(weight.handle))
