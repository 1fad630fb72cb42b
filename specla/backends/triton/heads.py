"""What the mixers take of each head, in one launch: normed, rotated, gated, written to cache."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.base import RotaryTable
from specla.backends.compositions import Compositions
from specla.backends.pools import KvPool
from specla.backends.triton.attention import own_place
from specla.backends.triton.elementwise import gdn_gate
from specla.backends.triton.launch import launch
from specla.backends.triton.norms import chunks, l2_normed, rms_factor
from specla.core.paging import PAGE
from specla.core.plan import StepPlan


@triton.jit
def _gdn_inputs(
    q, k, alpha, beta, a, dt_bias, q_out, k_out, decay_out, beta_out,
    heads, q_row, q_head, k_row, k_head, dim, eps, scale, value_heads,
    CHUNKS: tl.constexpr, LOG: tl.constexpr, VALUE_HEADS: tl.constexpr,
):  # fmt: skip
    """Programs of a row: a head of q or of k each, and one for all gates."""
    row, j = tl.program_id(0), tl.program_id(1)
    if j < heads:
        out = q_out + (row * heads + j) * dim
        l2_normed(q + row * q_row + j * q_head, out, dim, eps, scale, CHUNKS, LOG)
    elif j < 2 * heads:
        j -= heads
        out = k_out + (row * heads + j) * dim
        l2_normed(k + row * k_row + j * k_head, out, dim, eps, 1.0, CHUNKS, LOG)
    else:
        head = tl.arange(0, VALUE_HEADS)
        here = head < value_heads
        at = row * value_heads + head
        gdn_gate(alpha, beta, a, dt_bias, decay_out, beta_out, at, head, here)


@triton.jit
def _rotated(
    x, weight, cos, sin, position, dim, half, eps, CHUNKS: tl.constexpr, LOG: tl.constexpr,
    SIZE: tl.constexpr,
):  # fmt: skip
    """RMSNorm of the ``dim`` values at x, then pairs (i, i + half) rotated: [SIZE]."""
    r = rms_factor(x, dim, eps, CHUNKS, LOG)
    i = tl.arange(0, SIZE)
    first, turned = i < half, i < 2 * half
    # each computes its partner's value again, which is cheaper than asking for it
    other = tl.where(first, i + half, i - half)
    y = (tl.load(x + i, i < dim, 0.0) * r) * tl.load(weight + i, i < dim, 0.0)
    z = (tl.load(x + other, turned, 0.0) * r) * tl.load(weight + other, turned, 0.0)
    angle = position * half + tl.where(first, i, other)
    along = y * tl.load(cos + angle, turned, 0.0)
    across = z * tl.load(sin + angle, turned, 0.0)
    return tl.where(turned, tl.where(first, along - across, along + across), y)


@triton.jit
def _rms_norm_rotary(
    x, weight, position, cos, sin, out, row_stride, head_stride, heads, dim, half, eps,
    CHUNKS: tl.constexpr, LOG: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, head, i = tl.program_id(0), tl.program_id(1), tl.arange(0, SIZE)
    y = _rotated(
        x + row * row_stride + head * head_stride, weight, cos, sin, tl.load(position + row),
        dim, half, eps, CHUNKS, LOG, SIZE,
    )  # fmt: skip
    tl.store(out + (row * heads + head) * dim + i, y, i < dim)


@triton.jit
def _kv_append(
    k, weight, cos, sin, v, keys, values, counts, position, sequence, kv_row, slots, table,
    pages_per_slot, start, row_stride, head_stride, heads, dim, half, eps,
    PAGE: tl.constexpr, CHUNKS: tl.constexpr, LOG: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    row, head, i = tl.program_id(0), tl.program_id(1), tl.arange(0, SIZE)
    if row >= tl.load(counts):
        return
    y = _rotated(
        k + row * row_stride + head * head_stride, weight, cos, sin, tl.load(position + row),
        dim, half, eps, CHUNKS, LOG, SIZE,
    )  # fmt: skip
    place = start + own_place(row, sequence, kv_row, slots, table, pages_per_slot, PAGE)
    at = (place * heads + head) * dim + i
    # stores round to the cache's type, ties to even
    tl.store(keys + at, y.to(keys.dtype.element_ty), i < dim)
    value = tl.load(v + (row * heads + head) * dim + i, i < dim, 0.0)
    tl.store(values + at, value.to(values.dtype.element_ty), i < dim)


class Heads(Compositions):
    """These kernels as methods of the protocol."""

    def gdn_inputs(
        self,
        q: Any,
        k: Any,
        eps: float,
        scale: float,
        alpha: Any,
        beta: Any,
        a: Any,
        dt_bias: Any,
        q_out: Any,
        k_out: Any,
        decay_out: Any,
        beta_out: Any,
    ) -> None:
        n, heads, dim = q.shape
        value_heads = alpha.shape[1]
        arguments = (
            *(q, k, alpha, beta, a, dt_bias, q_out, k_out, decay_out, beta_out),
            *(heads, q.stride(0), q.stride(1), k.stride(0), k.stride(1), dim, eps, scale),
            value_heads,
        )
        size = int(triton.next_power_of_2(value_heads))
        grid = (n, 2 * heads + 1)
        launch(_gdn_inputs, grid, *arguments, **chunks(dim), VALUE_HEADS=size)

    def rms_norm_rotary(
        self, x: Any, weight: Any, eps: float, position: Any, table: RotaryTable, out: Any
    ) -> None:
        n, heads, dim = x.shape
        arguments = (
            *(x, weight, position, table.cos, table.sin, out, x.stride(0), x.stride(1)),
            *(heads, dim, table.cos.shape[1], eps),
        )
        size = int(triton.next_power_of_2(dim))
        launch(_rms_norm_rotary, (n, heads), *arguments, **chunks(dim), SIZE=size)

    def kv_append(
        self,
        k: Any,
        weight: Any,
        eps: float,
        table: RotaryTable,
        v: Any,
        kv: KvPool,
        layer: int,
        plan: StepPlan,
        room: Any,
    ) -> None:
        n, heads, dim = k.shape
        arguments = (
            *(k, weight, table.cos, table.sin, v, kv.key, kv.value, plan.counts, plan.position),
            *(plan.sequence, plan.kv_row, plan.slot, kv.page_table, kv.shape.pages_per_slot),
            *(layer * kv.shape.pages * PAGE, k.stride(0), k.stride(1), heads, dim),
            *(table.cos.shape[1], eps),
        )
        size = int(triton.next_power_of_2(dim))
        launch(_kv_append, (n, heads), *arguments, **chunks(dim), PAGE=PAGE, SIZE=size)
