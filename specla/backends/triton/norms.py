"""RMSNorm, its gated form, and the L2 norm of queries and keys: a program per row.

A row is taken in chunks, first for its sum and then again for its results, so that the registers
that a program needs don't grow with it.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.compositions import Compositions, Operand
from specla.backends.triton.elementary import div, rsqrt, silu
from specla.backends.triton.launch import launch
from specla.backends.triton.quantise import arrays_of, forms_of, store_blocks
from specla.backends.triton.sums import halves

LOG_CHUNK = 10
"""Columns of a chunk, or fewer."""
LOG_MOST_CHUNKS = 4


@triton.jit
def _squares(x, chunk, dim, SIZE: tl.constexpr):
    i = chunk * SIZE + tl.arange(0, SIZE)
    v = tl.load(x + i, i < dim, 0.0)
    return v * v


# the upper levels of the halving tree add chunks that are half of all, a quarter, ... apart


@triton.jit
def _two(x, chunk, step, dim, SIZE: tl.constexpr):
    return _squares(x, chunk, dim, SIZE) + _squares(x, chunk + step, dim, SIZE)


@triton.jit
def _four(x, chunk, step, dim, SIZE: tl.constexpr):
    return _two(x, chunk, 2 * step, dim, SIZE) + _two(x, chunk + step, 2 * step, dim, SIZE)


@triton.jit
def _eight(x, chunk, step, dim, SIZE: tl.constexpr):
    return _four(x, chunk, 2 * step, dim, SIZE) + _four(x, chunk + step, 2 * step, dim, SIZE)


@triton.jit
def sum_of_squares(x, dim, CHUNKS: tl.constexpr, LOG: tl.constexpr):
    """Halving tree over the ``dim`` values at x, in chunks of 2 ** LOG: [1]."""
    tl.static_assert(CHUNKS <= 16)
    if CHUNKS == 1:
        total = _squares(x, 0, dim, 2**LOG)
    if CHUNKS == 2:
        total = _two(x, 0, 1, dim, 2**LOG)
    if CHUNKS == 4:
        total = _four(x, 0, 1, dim, 2**LOG)
    if CHUNKS == 8:
        total = _eight(x, 0, 1, dim, 2**LOG)
    if CHUNKS == 16:
        total = _eight(x, 0, 2, dim, 2**LOG) + _eight(x, 1, 2, dim, 2**LOG)
    return halves(tl.reshape(total, [1, 2**LOG]), LOG, 1)


@triton.jit
def rms_factor(x, dim, eps, CHUNKS: tl.constexpr, LOG: tl.constexpr):
    """rsqrt(mean(x^2) + eps): [1]."""
    mean = div(sum_of_squares(x, dim, CHUNKS, LOG), tl.zeros([1], tl.float32) + dim)
    return rsqrt(mean + eps)


@triton.jit
def _row(x, heads, row_stride, head_stride):
    row = tl.program_id(0)
    return x + row // heads * row_stride + row % heads * head_stride


@triton.jit
def _store(
    y, here, row, column, out, values, scales, sums, cols, blocks,
    FLOATS: tl.constexpr, BLOCKS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """y [SIZE] from a column of a row on: as floats, as int8 blocks, or both."""
    if FLOATS:
        tl.store(out + row * cols + column + tl.arange(0, SIZE), y, here)
    if BLOCKS:
        # where a row is broken, its padding is NaN before this
        v = tl.reshape(tl.where(here, y, 0.0), [SIZE // 32, 32])
        j = column // 32 + tl.arange(0, SIZE // 32)
        store_blocks(v, row, j, values, scales, sums, blocks, SIZE // 32)


@triton.jit
def _rms_norm(
    x, weight, out, values, scales, sums, blocks, heads, row_stride, head_stride, dim, eps,
    CHUNKS: tl.constexpr, LOG: tl.constexpr, FLOATS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = 2**LOG
    x, row = _row(x, heads, row_stride, head_stride), tl.program_id(0)
    r = rms_factor(x, dim, eps, CHUNKS, LOG)
    for first in range(0, dim, SIZE):
        i = first + tl.arange(0, SIZE)
        here = i < dim
        y = (tl.load(x + i, here, 0.0) * r) * tl.load(weight + i, here, 0.0)
        _store(
            y, here, row, first, out, values, scales, sums, dim, blocks, FLOATS, BLOCKS, SIZE
        )  # fmt: skip


@triton.jit
def _gated_rms_norm(
    x, gate, weight, out, values, scales, sums, blocks, heads, dim, eps,
    CHUNKS: tl.constexpr, LOG: tl.constexpr, FLOATS: tl.constexpr, BLOCKS: tl.constexpr,
):  # fmt: skip
    SIZE: tl.constexpr = 2**LOG
    at = tl.program_id(0) * dim
    row, head = tl.program_id(0) // heads, tl.program_id(0) % heads
    r = rms_factor(x + at, dim, eps, CHUNKS, LOG)
    for first in range(0, dim, SIZE):
        i = first + tl.arange(0, SIZE)
        here = i < dim
        y = (tl.load(x + at + i, here, 0.0) * r) * tl.load(weight + i, here, 0.0)
        y = y * silu(tl.load(gate + at + i, here, 0.0))
        _store(
            y, here, row, head * dim + first, out, values, scales, sums, heads * dim, blocks,
            FLOATS, BLOCKS, SIZE,
        )  # fmt: skip


@triton.jit
def l2_normed(x, out, dim, eps, scale, CHUNKS: tl.constexpr, LOG: tl.constexpr):
    """The ``dim`` values at x, divided by their norm and scaled, to out."""
    r = rsqrt(sum_of_squares(x, dim, CHUNKS, LOG) + eps)
    for first in range(0, dim, 2**LOG):
        i = first + tl.arange(0, 2**LOG)
        tl.store(out + i, (tl.load(x + i, i < dim, 0.0) * r) * scale, i < dim)


@triton.jit
def _l2_norm(
    x, out, heads, row_stride, head_stride, dim, eps, scale, CHUNKS: tl.constexpr, LOG: tl.constexpr
):
    x = _row(x, heads, row_stride, head_stride)
    l2_normed(x, out + tl.program_id(0) * dim, dim, eps, scale, CHUNKS, LOG)


class Norms(Compositions):
    """These kernels as methods of the protocol."""

    def rms_norm(self, x: Any, weight: Any, eps: float, out: Any) -> None:
        self.rms_norm_operand(x, weight, eps, Operand(out, None, exact=True))

    def rms_norm_operand(self, x: Any, weight: Any, eps: float, out: Operand) -> None:
        arguments = (x, weight, *_results(out), *_rows(x), x.shape[-1], eps)
        _each_row(_rms_norm, x, *arguments, **forms_of(out))

    def gated_rms_norm(self, x: Any, gate: Any, weight: Any, eps: float, out: Any) -> None:
        self.gated_rms_norm_operand(x, gate, weight, eps, Operand(out, None, exact=True))

    def gated_rms_norm_operand(
        self, x: Any, gate: Any, weight: Any, eps: float, out: Operand
    ) -> None:
        _, heads, dim = x.shape
        if dim % 32 and out.quantised is not None:
            # a block has values of two heads
            super().gated_rms_norm_operand(x, gate, weight, eps, out)
            return
        arguments = (x, gate, weight, *_results(out), heads, dim, eps)
        _each_row(_gated_rms_norm, x, *arguments, **forms_of(out))

    def l2_norm(self, x: Any, eps: float, scale: float, out: Any) -> None:
        arguments = (x, out, *_rows(x), x.shape[-1], eps, scale)
        _each_row(_l2_norm, x, *arguments)


def _each_row(kernel: Any, x: Any, *arguments: Any, **meta: Any) -> None:
    dim = x.shape[-1]
    launch(kernel, (x.numel() // dim,), *arguments, **chunks(dim), **meta)


def chunks(dim: int) -> dict[str, int]:
    """How a program takes a row. A short row on several warps spills registers on some GPUs."""
    log = max(5, (dim - 1).bit_length())
    size = max(min(log, LOG_CHUNK), log - LOG_MOST_CHUNKS)
    return {"LOG": size, "CHUNKS": 2 ** (log - size), "warps": 1 if log <= 9 else 8}


def _results(out: Operand) -> tuple[Any, ...]:
    """Where a row's results go, and how many blocks it has."""
    return (*arrays_of(out), 0 if out.quantised is None else out.quantised.scale.shape[1])


def _rows(x: Any) -> tuple[int, int, int]:
    """Rows of the last axis: how many share a leading index, strides of both axes."""
    if x.dim() == 2:
        return 1, x.stride(0), 0
    return x.shape[1], x.stride(0), x.stride(1)
