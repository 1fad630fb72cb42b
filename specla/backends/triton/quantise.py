"""Activations in int8 blocks of 32: the quantiser, and gates whose results it takes at once."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.base import QuantisedRows
from specla.backends.compositions import Compositions, Operand
from specla.backends.triton.elementary import div, sigmoid
from specla.backends.triton.launch import launch

MANY = 8
"""Blocks that a program takes."""


@triton.jit
def store_blocks(v, row, j, values, scales, sums, blocks, MANY: tl.constexpr):
    """Blocks v [MANY, 32] of a row, at places j [MANY] among its ``blocks``:
    scale = absmax / 127, values = round_half_even(x / scale)."""
    broken = tl.max((v != v).to(tl.int32), 1) > 0
    top = tl.max(tl.where(v == v, tl.abs(v), 0.0), 1)
    scale = div(tl.where(broken, float("nan"), top), tl.zeros([MANY], tl.float32) + 127.0)
    divisor = tl.where(scale == 0.0, 1.0, scale)
    quotient = div(v, tl.zeros([MANY, 32], tl.float32) + divisor[:, None])
    # NaN becomes 0: the scale carries it on. A subnormal scale lets quotients pass 127
    bounded = tl.where(quotient == quotient, quotient, 0.0)
    bounded = tl.where(bounded > 127.0, 127.0, tl.where(bounded < -127.0, -127.0, bounded))
    # adding and taking away 1.5 * 2^23 rounds to even
    whole = ((bounded + 12582912.0) - 12582912.0).to(tl.int32)
    place = row * blocks + j
    at = values + place[:, None] * 32 + tl.arange(0, 32)[None, :]
    tl.store(at, whole.to(tl.int8), (j < blocks)[:, None])
    tl.store(scales + place, scale, j < blocks)
    halves = tl.sum(tl.reshape(whole, [MANY, 2, 16]), 2).to(tl.int16)
    tl.store(sums + place[:, None] * 2 + tl.arange(0, 2)[None, :], halves, (j < blocks)[:, None])


@triton.jit
def _quantise(x, values, scales, sums, stride, cols, blocks, MANY: tl.constexpr):
    row, j = tl.program_id(0), tl.program_id(1) * MANY + tl.arange(0, MANY)
    column = j[:, None] * 32 + tl.arange(0, 32)[None, :]
    v = tl.load(x + row * stride + column, column < cols, 0.0)
    store_blocks(v, row, j, values, scales, sums, blocks, MANY)


@triton.jit
def _sigmoid_gate_blocks(
    x, gate, floats, values, scales, sums, row_stride, head_stride, dim, cols, blocks,
    MANY: tl.constexpr, FLOATS: tl.constexpr,
):  # fmt: skip
    row, j = tl.program_id(0), tl.program_id(1) * MANY + tl.arange(0, MANY)
    column = j[:, None] * 32 + tl.arange(0, 32)[None, :]
    here = column < cols
    gate_at = row * row_stride + column // dim * head_stride + column % dim
    v = tl.load(x + row * cols + column, here, 0.0) * sigmoid(tl.load(gate + gate_at, here, 0.0))
    if FLOATS:
        tl.store(floats + row * cols + column, v, here)
    store_blocks(v, row, j, values, scales, sums, blocks, MANY)


def arrays_of(out: Operand) -> tuple[Any, ...]:
    """floats, values, scales, sums; what a launch has no use for must still be there."""
    q = out.quantised
    return (out.floats,) * 4 if q is None else (out.floats, q.values, q.scale, q.sums)


def forms_of(out: Operand) -> dict[str, bool]:
    """Constants of a kernel that writes an operand."""
    return {"FLOATS": out.exact, "BLOCKS": out.quantised is not None}


class Quantiser(Compositions):
    """These kernels as methods of the protocol."""

    def quantise(self, x: Any, out: QuantisedRows) -> None:
        n, cols = x.shape
        count = out.scale.shape[1]
        arguments = (x, out.values, out.scale, out.sums, x.stride(0), cols, count)
        launch(_quantise, (n, triton.cdiv(count, MANY)), *arguments, MANY=MANY)

    def sigmoid_gate_operand(self, x: Any, gate: Any, out: Operand) -> None:
        if out.quantised is None:
            super().sigmoid_gate_operand(x, gate, out)
            return
        n, cols = out.floats.shape
        count = out.quantised.scale.shape[1]
        strides = gate.stride(0), gate.stride(1)
        arguments = (x, gate, *arrays_of(out), *strides, x.shape[2], cols, count)
        grid = (n, triton.cdiv(count, MANY))
        launch(_sigmoid_gate_blocks, grid, *arguments, MANY=MANY, FLOATS=out.exact)
