"""Matrices on the device, and their dequantised rows."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl

from specla.backends import blocks
from specla.backends.base import Weight
from specla.backends.triton.arrays import TorchArrays
from specla.backends.triton.launch import launch
from specla.backends.triton.packing import BLOCK, LAYOUTS, Packed, pack
from specla.backends.triton.quants import block_quants, widened
from specla.backends.weights import WeightSource
from specla.errors import UnsupportedModelError

MOST_QUANTS = 2**31
"""Kernels find a quant of a matrix by an int32."""
HALVES = {"F16": torch.float16, "BF16": torch.int16}


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
        m = tl.load(minimum_scale + j // RUN * rows + token, here, 0.0).to(tl.float32) * least
        y = y - m[:, None]
    tl.store(out + n * cols + j[:, None] * 32 + i[None, :], y, here[:, None])


@triton.jit
def _embed_floats(tokens, weight, out, cols, BLOCK: tl.constexpr):
    n, i = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    token = tl.load(tokens + n).to(tl.int64)
    value = tl.load(weight + token * cols + i, i < cols, 0)
    tl.store(out + n * cols + i, widened(value), i < cols)


@dataclass(frozen=True)
class FloatMatrix:
    """values: [rows, cols] in float32, float16, or the bits of bfloat16 as int16."""

    values: Any


class Matrices(TorchArrays):
    """The part of the protocol that loads matrices and looks rows up."""

    def load(self, source: WeightSource) -> Weight:
        if source.kind in blocks.NATIVE:
            if source.rows * source.cols >= MOST_QUANTS:
                raise UnsupportedModelError(
                    f"{source.name} has {source.rows} rows of {source.cols} {source.kind} weights, "
                    f"more than backend triton counts to ({MOST_QUANTS - 1}); use --backend numba"
                )
            host = pack(source)
            arrays = {f.name: self.upload(getattr(host, f.name)) for f in fields(Packed)}
            handle: Any = Packed(**arrays)
        else:
            handle = FloatMatrix(self._floats(source))
        source.release()
        return Weight(source, source.kind in blocks.NATIVE, handle)

    def _floats(self, source: WeightSource) -> Any:
        """F16 and BF16 stay as small as they are: kernels widen them exactly."""
        dtype = HALVES.get(source.kind)
        if dtype is None:
            return self.upload(blocks.dequantise(source.kind, source.data, source.cols))
        raw = np.ascontiguousarray(source.data).view(np.int16)
        return self.upload(raw).view(dtype).view(source.rows, source.cols)

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
        launch(_embed_quants, grid, *quants, **layout_of(weight), MANY=many)


def layout_of(weight: Weight) -> dict[str, Any]:
    """Constants of a kernel that reads a quantised matrix."""
    layout = LAYOUTS[weight.source.kind]
    return {
        "BITS": layout.bits,
        "OFFSET": layout.offset,
        "SUBS": layout.subs,
        "MINIMA": layout.minima,
        "RUN": layout.run,
    }
