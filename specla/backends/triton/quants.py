"""Quants of a block out of their packing, as kernels read them (packing.py)."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def block_quants(
    low, high, line, inside, BITS: tl.constexpr, OFFSET: tl.constexpr, ROWS: tl.constexpr
):
    """int8 [ROWS, 32] of the blocks at ``line`` [ROWS], which counts blocks times rows of W."""
    if BITS == 8:
        i = tl.arange(0, 32)
        return tl.load(low + line[:, None] * 32 + i[None, :], inside[:, None], 0)
    i = tl.arange(0, 16)
    packed = tl.load(low + line[:, None] * 16 + i[None, :], inside[:, None], 0).to(tl.int32)
    even, odd = packed & 15, (packed >> 4) & 15
    if BITS == 5:
        word = tl.load(high + line, inside, 0)[:, None]
        even |= ((word >> (2 * i)[None, :]) & 1) << 4
        odd |= ((word >> (2 * i + 1)[None, :]) & 1) << 4
    if BITS == 6:
        # columns 0..15 are in the first word: these are bytes 0..7
        word = tl.load(high + line[:, None] * 2 + (i // 8)[None, :], inside[:, None], 0)
        even |= ((word >> (4 * (i % 8))[None, :]) & 3) << 4
        odd |= ((word >> (4 * (i % 8) + 2)[None, :]) & 3) << 4
    quants = tl.reshape(tl.join(even, odd), [ROWS, 32])
    return (quants - OFFSET).to(tl.int8)


@triton.jit
def widened(x):
    """Float weights as float32, exactly: float32, float16, or the bits of bfloat16 as int16.

    Bits rather than the type: Triton's interpreter widens small bfloat16 wrongly.
    """
    if x.dtype == tl.int16:
        return (x.to(tl.int32) << 16).to(tl.float32, bitcast=True)
    else:
        return x.to(tl.float32)
