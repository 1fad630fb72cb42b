"""How a product ends: its eight segments are added, and what always follows is done at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from specla.backends.compositions import Operand
from specla.backends.triton.elementary import silu
from specla.backends.triton.launch import launch
from specla.backends.triton.quantise import arrays_of, forms_of, store_blocks

SIZE = 256
"""Sums that a program makes."""
MANY = 16
"""Blocks of 32 that a program quantises."""


@triton.jit
def _sum(at, step, here):
    """Halving tree over the eight segments, ``step`` apart."""
    step = tl.cast(step, tl.int64)
    even = tl.load(at, here, 0.0) + tl.load(at + 4 * step, here, 0.0)
    even = even + (tl.load(at + 2 * step, here, 0.0) + tl.load(at + 6 * step, here, 0.0))
    odd = tl.load(at + step, here, 0.0) + tl.load(at + 5 * step, here, 0.0)
    odd = odd + (tl.load(at + 3 * step, here, 0.0) + tl.load(at + 7 * step, here, 0.0))
    return even + odd


@triton.jit
def _add_segments(
    partial, out_0, size_0, out_1, size_1, out_2, size_2, out_3, size_3,
    COUNT: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    tile = tl.program_id(0)
    out, size, place = out_0, size_0, tl.cast(0, tl.int64)
    first, end, next_place = 0, tl.cdiv(size_0, SIZE), 8 * tl.cast(size_0, tl.int64)
    if COUNT > 1:
        if tile >= end:
            out, size, place, first = out_1, size_1, next_place, end
        end += tl.cdiv(size_1, SIZE)
        next_place += 8 * tl.cast(size_1, tl.int64)
    if COUNT > 2:
        if tile >= end:
            out, size, place, first = out_2, size_2, next_place, end
        end += tl.cdiv(size_2, SIZE)
        next_place += 8 * tl.cast(size_2, tl.int64)
    if COUNT > 3:  # noqa: SIM102 (decided when compiling)
        if tile >= end:
            out, size, place, first = out_3, size_3, next_place, end
    at = (tile - first) * SIZE + tl.arange(0, SIZE)
    tl.store(out + at, _sum(partial + place + at, size, at < size), at < size)


@triton.jit
def _add_to(partial, out, size, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    here = at < size
    tl.store(out + at, tl.load(out + at, here, 0.0) + _sum(partial + at, size, here), here)


@triton.jit
def _swiglu_segments(
    partial, floats, values, scales, sums, n, cols, blocks,
    FLOATS: tl.constexpr, BLOCKS: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    row, j = tl.program_id(0), tl.program_id(1) * MANY + tl.arange(0, MANY)
    column = j[:, None] * 32 + tl.arange(0, 32)[None, :]
    here, at = column < cols, row * cols + column
    gate = _sum(partial + at, n * cols, here)
    up = _sum(partial + 8 * tl.cast(n * cols, tl.int64) + at, n * cols, here)
    v = silu(gate) * up
    if FLOATS:
        tl.store(floats + at, v, here)
    if BLOCKS:
        store_blocks(v, row, j, values, scales, sums, blocks, MANY)


def add_segments(partial: Any, outs: Sequence[Any]) -> None:
    """outs = the sums of their segments, which lie in their order."""
    members = [(out, out.numel()) for out in outs]
    tiles = sum(triton.cdiv(size, SIZE) for _, size in members)
    # what a launch has no use for must still be there
    rest = [value for member in (members + members[:1] * 4)[:4] for value in member]
    launch(_add_segments, (tiles,), partial, *rest, COUNT=len(outs), SIZE=SIZE)


def add_to(partial: Any, out: Any) -> None:
    """out += the sum of the segments."""
    size = out.numel()
    launch(_add_to, (triton.cdiv(size, SIZE),), partial, out, size, SIZE=SIZE)


def swiglu(partial: Any, out: Operand) -> None:
    """out = silu(gate) * up of the sums of both."""
    n, cols = out.floats.shape
    blocks = triton.cdiv(cols, 32)
    grid = (n, triton.cdiv(blocks, MANY))
    arguments = (partial, *arrays_of(out), n, cols, blocks)
    launch(_swiglu_segments, grid, *arguments, MANY=MANY, **forms_of(out))
