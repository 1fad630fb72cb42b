"""RMSNorm, its gated form, and the L2 norm of queries and keys: a program per row."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.triton.elementary import div, rsqrt, silu
from specla.backends.triton.launch import launch
from specla.backends.triton.sums import halves


@triton.jit
def _row(x, heads, row_stride, head_stride):
    row = tl.program_id(0)
    return x + row // heads * row_stride + row % heads * head_stride


@triton.jit
def _sum_of_squares(v, LOG: tl.constexpr):
    return halves(tl.reshape(v * v, [1, 2**LOG]), LOG, 1)


@triton.jit
def _rms_norm(x, weight, out, heads, row_stride, head_stride, dim, eps, LOG: tl.constexpr):
    i = tl.arange(0, 2**LOG)
    here = i < dim
    v = tl.load(_row(x, heads, row_stride, head_stride) + i, here, 0.0)
    mean = div(_sum_of_squares(v, LOG), tl.zeros([1], tl.float32) + dim)
    y = (v * rsqrt(mean + eps)) * tl.load(weight + i, here, 0.0)
    tl.store(out + tl.program_id(0) * dim + i, y, here)


@triton.jit
def _gated_rms_norm(x, gate, weight, out, dim, eps, LOG: tl.constexpr):
    i = tl.arange(0, 2**LOG)
    here = i < dim
    at = tl.program_id(0) * dim + i
    v = tl.load(x + at, here, 0.0)
    mean = div(_sum_of_squares(v, LOG), tl.zeros([1], tl.float32) + dim)
    y = (v * rsqrt(mean + eps)) * tl.load(weight + i, here, 0.0)
    tl.store(out + at, y * silu(tl.load(gate + at, here, 0.0)), here)


@triton.jit
def _l2_norm(x, out, heads, row_stride, head_stride, dim, eps, scale, LOG: tl.constexpr):
    i = tl.arange(0, 2**LOG)
    here = i < dim
    v = tl.load(_row(x, heads, row_stride, head_stride) + i, here, 0.0)
    y = (v * rsqrt(_sum_of_squares(v, LOG) + eps)) * scale
    tl.store(out + tl.program_id(0) * dim + i, y, here)


class Norms:
    """These kernels as methods of the protocol."""

    def rms_norm(self, x: Any, weight: Any, eps: float, out: Any) -> None:
        dim = x.shape[-1]
        arguments = (x, weight, out, *_rows(x), dim, eps)
        _each_row(_rms_norm, x, *arguments)

    def gated_rms_norm(self, x: Any, gate: Any, weight: Any, eps: float, out: Any) -> None:
        dim = x.shape[-1]
        arguments = (x, gate, weight, out, dim, eps)
        _each_row(_gated_rms_norm, x, *arguments)

    def l2_norm(self, x: Any, eps: float, scale: float, out: Any) -> None:
        dim = x.shape[-1]
        arguments = (x, out, *_rows(x), dim, eps, scale)
        _each_row(_l2_norm, x, *arguments)


def _each_row(kernel: Any, x: Any, *arguments: Any) -> None:
    """One program per row. A short row on several warps spills registers on some GPUs."""
    dim = x.shape[-1]
    grid, warps = (x.numel() // dim,), 1 if dim <= 512 else 8
    launch(kernel, grid, *arguments, warps=warps, LOG=_log(dim))


def _rows(x: Any) -> tuple[int, int, int]:
    """Rows of the last axis: how many share a leading index, strides of both axes."""
    if x.dim() == 2:
        return 1, x.stride(0), 0
    return x.shape[1], x.stride(0), x.stride(1)


def _log(dim: int) -> int:
    return int(triton.next_power_of_2(dim)).bit_length() - 1
