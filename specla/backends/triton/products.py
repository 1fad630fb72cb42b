"""Weight products: exact integer blocks for quantised weights, trees of 32 for float weights.

A row's blocks are cut into 8 segments (docs/arithmetic.md, section 5), and a program sums one of
them for a tile of rows: the split over columns that a GPU wants. A second launch adds the eight.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import triton
import triton.language as tl

from specla.backends import blocks
from specla.backends.base import QuantisedRows, Weight
from specla.backends.triton.arrays import TorchArrays
from specla.backends.triton.elementary import div
from specla.backends.triton.launch import INTERPRETED, launch
from specla.backends.triton.packing import BLOCK, LAYOUTS, Packed, pack
from specla.backends.triton.quants import block_quants
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.sums import halves
from specla.backends.weights import WeightSource

SEGMENTS = 8
ROWS = 512 if INTERPRETED else 64
"""Rows of W that a program takes. A program costs the interpreter as much for few as for many."""
MOST_TOKENS = 64
FLOAT_KINDS = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


@triton.jit
def _quantise(x, values, scales, sums, stride, cols, blocks, MANY: tl.constexpr):
    """MANY blocks of a row: scale = absmax / 127, values = round_half_even(x / scale)."""
    row, j = tl.program_id(0), tl.program_id(1) * MANY + tl.arange(0, MANY)
    column = j[:, None] * 32 + tl.arange(0, 32)[None, :]
    v = tl.load(x + row * stride + column, column < cols, 0.0)
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
    inside = (j < blocks)[:, None]
    tl.store(
        values + row * blocks * 32 + column, whole.to(tl.int8), inside & (column < blocks * 32)
    )
    tl.store(scales + row * blocks + j, scale, j < blocks)
    low, high = tl.split(tl.permute(tl.reshape(whole, [MANY, 2, 16]), (0, 2, 1)))
    at = sums + (row * blocks + j) * 2
    tl.store(at, tl.sum(low, 1).to(tl.int16), j < blocks)
    tl.store(at + 1, tl.sum(high, 1).to(tl.int16), j < blocks)


@triton.jit
def _segment(
    values, scales, sums, low, high, subs, minimum, scale, minimum_scale, partial,
    n, rows, blocks,
    BITS: tl.constexpr, OFFSET: tl.constexpr, SUBS: tl.constexpr, MINIMA: tl.constexpr,
    RUN: tl.constexpr, ROWS: tl.constexpr, TOKENS: tl.constexpr,
):  # fmt: skip
    """One segment of a tile of rows, for a tile of tokens: partial [8, n, rows]."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
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
            first = tl.dot(w, tl.where((i < 16)[:, None], x, 0).to(tl.int8), out_dtype=tl.int32)
            second = tl.dot(w, tl.where((i < 16)[:, None], 0, x).to(tl.int8), out_dtype=tl.int32)
            whole = first * tl.load(subs + line * 2, here, 0).to(tl.int32)[:, None]
            whole += second * tl.load(subs + line * 2 + 1, here, 0).to(tl.int32)[:, None]
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
    at = partial + (segment * n + t)[None, :] * rows + r[:, None]
    tl.store(at, total, here[:, None] & (t < n)[None, :])


@triton.jit
def _float_segment(x, weight, partial, n, rows, cols, blocks, ROWS: tl.constexpr):
    """The same for float weights and one token; a block's term is the tree of its products."""
    r = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    segment, t = tl.program_id(1), tl.program_id(2)
    i = tl.arange(0, 32)
    here = r < rows
    length = (blocks + 7) // 8
    total = tl.zeros([ROWS], tl.float32)
    for block in range(segment * length, tl.minimum((segment + 1) * length, blocks)):
        column = block * 32 + i
        v = tl.load(x + t * cols + column, column < cols, 0.0)
        at = weight + r.to(tl.int64)[:, None] * cols + column[None, :]
        w = tl.load(at, here[:, None] & (column < cols)[None, :], 0.0).to(tl.float32)
        total = total + halves(w * v[None, :], 5, ROWS)
    tl.store(partial + (segment * n + t) * rows + r, total, here)


@triton.jit
def _add_segments(partial, out, size, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < size
    i = tl.arange(0, 8)
    eight = tl.load(partial + i[None, :] * size + at[:, None], here[:, None], 0.0)
    tl.store(out + at, halves(eight, 3, BLOCK), here)


@triton.jit
def _embed_quants(
    tokens, low, high, subs, minimum, scale, minimum_scale, out, rows, cols,
    BITS: tl.constexpr, OFFSET: tl.constexpr, SUBS: tl.constexpr, MINIMA: tl.constexpr,
    RUN: tl.constexpr, MANY: tl.constexpr,
):  # fmt: skip
    """MANY blocks of a token's row, dequantised as ggml does it."""
    n, j = tl.program_id(0), tl.program_id(1) * MANY + tl.arange(0, MANY)
    token = tl.load(tokens + n)
    here = j < cols // 32
    line = j * rows + token
    quants = block_quants(low, high, line, here, BITS, OFFSET, MANY).to(tl.float32)
    i = tl.arange(0, 32)
    d = tl.load(scale + j // RUN * rows + token, here, 0.0).to(tl.float32)[:, None]
    if SUBS == 2:
        at = subs + line[:, None] * 2 + (i // 16)[None, :]
        d = d * tl.load(at, here[:, None], 0).to(tl.float32)
    if SUBS == 1:
        d = d * tl.load(subs + line, here, 0).to(tl.float32)[:, None]
    y = d * quants
    if MINIMA:
        least = tl.load(minimum + line, here, 0).to(tl.float32)
        y = (
            y
            - (tl.load(minimum_scale + j // RUN * rows + token, here, 0.0).to(tl.float32) * least)[
                :, None
            ]
        )
    tl.store(out + n * cols + j[:, None] * 32 + i[None, :], y, here[:, None])


@triton.jit
def _embed_floats(tokens, weight, out, cols, BLOCK: tl.constexpr):
    n, i = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + n).to(tl.int64)
    value = tl.load(weight + token * cols + i, i < cols, 0.0).to(tl.float32)
    tl.store(out + n * cols + i, value, i < cols)


@dataclass(frozen=True)
class FloatMatrix:
    """values: [rows, cols] in float32, float16 or bfloat16."""

    values: Any


class Products(TorchArrays):
    """These kernels as methods of the protocol."""

    _scratch: Scratch

    def load(self, source: WeightSource) -> Weight:
        if source.kind in blocks.NATIVE:
            host = pack(source)
            arrays = {f.name: self.upload(getattr(host, f.name)) for f in fields(Packed)}
            handle: Any = Packed(**arrays)
        else:
            handle = FloatMatrix(self._floats(source))
        source.release()
        return Weight(source, source.kind in blocks.NATIVE, handle)

    def _floats(self, source: WeightSource) -> Any:
        """F16 and BF16 stay as small as they are: kernels widen them exactly."""
        import torch

        kind = FLOAT_KINDS.get(source.kind, "float32")
        if kind == "bfloat16":
            raw = np.ascontiguousarray(source.data).view(np.int16)
            return self.upload(raw).view(torch.bfloat16).view(source.rows, source.cols)
        if kind == "float16":
            raw = np.ascontiguousarray(source.data).view(np.float16)
            return self.upload(raw).view(source.rows, source.cols)
        return self.upload(blocks.dequantise(source.kind, source.data, source.cols))

    def quantise(self, x: Any, out: QuantisedRows) -> None:
        n, cols = x.shape
        count, many = out.scale.shape[1], 8
        arguments = (x, out.values, out.scale, out.sums, x.stride(0), cols, count)
        launch(_quantise, (n, triton.cdiv(count, many)), *arguments, MANY=many)

    def linear_quantised(self, x: QuantisedRows, weight: Weight, out: Any) -> None:
        packed: Packed = weight.handle
        n, count = x.scale.shape
        rows = weight.source.rows
        tokens = min(MOST_TOKENS, max(16, int(triton.next_power_of_2(n))))
        partial = self._scratch.floats("segments", SEGMENTS, n, rows)
        arguments = (
            *(x.values, x.scale, x.sums, packed.low, packed.high, packed.subs, packed.minimum),
            *(packed.scale, packed.minimum_scale, partial, n, rows, count),
        )
        grid = (triton.cdiv(rows, ROWS), SEGMENTS, triton.cdiv(n, tokens))
        launch(_segment, grid, *arguments, **_layout(weight), ROWS=ROWS, TOKENS=tokens)
        _add(partial, out)

    def linear_float(self, x: Any, weight: Weight, out: Any) -> None:
        n, cols = x.shape
        rows = weight.source.rows
        partial = self._scratch.floats("segments", SEGMENTS, n, rows)
        arguments = (x, weight.handle.values, partial, n, rows, cols, -(-cols // BLOCK))
        launch(_float_segment, (triton.cdiv(rows, ROWS), SEGMENTS, n), *arguments, ROWS=ROWS)
        _add(partial, out)

    def embed(self, tokens: Any, weight: Weight, out: Any) -> None:
        n, cols = out.shape
        if not weight.quantised:
            floats = (tokens, weight.handle.values, out, cols)
            launch(_embed_floats, (n, triton.cdiv(cols, 1024)), *floats, BLOCK=1024)
            return
        p, many = weight.handle, 8
        quants = (
            *(tokens, p.low, p.high, p.subs, p.minimum, p.scale, p.minimum_scale, out),
            *(weight.source.rows, cols),
        )
        grid = (n, triton.cdiv(cols // BLOCK, many))
        launch(_embed_quants, grid, *quants, **_layout(weight), MANY=many)


def _layout(weight: Weight) -> dict[str, Any]:
    layout = LAYOUTS[weight.source.kind]
    return {
        "BITS": layout.bits,
        "OFFSET": layout.offset,
        "SUBS": layout.subs,
        "MINIMA": layout.minima,
        "RUN": layout.run,
    }


def _add(partial: Any, out: Any) -> None:
    size, block = out.numel(), 256
    launch(_add_segments, (triton.cdiv(size, block),), partial, out, size, BLOCK=block)
