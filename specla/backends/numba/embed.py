"""Rows of the token embedding as floats, straight from the bytes of the file.

Block layouts: specla/backends/blocks.py. The operations and their order are those of
``blocks.dequantise``: ``d * q``, and for K-quants ``(d * sc) * q - dmin * m``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba.core import types

from specla.backends.numba.jit import Kernel, device, routine
from specla.backends.numba.panels import FLOAT_KINDS, KINDS
from specla.backends.numba.panels import Q4_0 as _Q4_0
from specla.backends.numba.panels import Q4_K as _Q4_K
from specla.backends.numba.panels import Q5_K as _Q5_K
from specla.backends.numba.panels import Q6_K as _Q6_K
from specla.backends.numba.panels import Q8_0 as _Q8_0
from specla.backends.numba.primitives import contiguous, from_bits, widen

_F16, _BF16 = FLOAT_KINDS["F16"], FLOAT_KINDS["BF16"]
COMPILED = {**KINDS, **FLOAT_KINDS}
"""Kinds that have a kernel here, by name."""


@device
def _half(row: Any, at: int) -> Any:
    """The float16 at byte ``at``."""
    return widen(np.uint16(row[at] | np.int64(row[at + 1]) << 8))


@device
def _signed(byte: Any) -> Any:
    return np.float32(np.int8(byte))


@routine
def _q8_0(row: Any, y: Any) -> None:
    for block in range(y.shape[0] // 32):
        at = 34 * block
        d, part = _half(row, at), y[32 * block : 32 * block + 32]
        for i in range(32):
            part[i] = d * _signed(row[at + 2 + i])


@routine
def _q4_0(row: Any, y: Any) -> None:
    for block in range(y.shape[0] // 32):
        at = 18 * block
        d, part = _half(row, at), y[32 * block : 32 * block + 32]
        for i in range(16):
            byte = np.int32(row[at + 2 + i])
            part[i] = d * np.float32((byte & 15) - 8)
            part[16 + i] = d * np.float32((byte >> 4) - 8)


@device
def _sub_scales(row: Any, at: int, block: int) -> Any:
    """6-bit sub-scale and minimum of one block of 32; at: where the 12 bytes of them begin."""
    if block < 4:
        return row[at + block] & 63, row[at + 4 + block] & 63
    low, mid, high = row[at + block - 4], row[at + block], row[at + 4 + block]
    return (high & 15) | (low >> 6) << 4, (high >> 4) | (mid >> 6) << 4


@routine
def _q4_or_q5_k(row: Any, y: Any, high_bytes: int) -> None:
    """high_bytes: of a super-block's fifth bits, before its low ones: 0 or 32."""
    for super_block in range(y.shape[0] // 256):
        at = (144 + high_bytes) * super_block
        d, dmin = _half(row, at), _half(row, at + 2)
        for block in range(8):
            scale, minimum = _sub_scales(row, at + 4, block)
            a, b = d * np.float32(scale), dmin * np.float32(minimum)
            low, shift = at + 16 + high_bytes + 32 * (block // 2), 4 * (block % 2)
            part = y[256 * super_block + 32 * block : 256 * super_block + 32 * block + 32]
            for i in range(32):
                q = (np.int32(row[low + i]) >> shift) & 15
                if high_bytes:
                    q |= ((np.int32(row[at + 16 + i]) >> block) & 1) << 4
                part[i] = a * np.float32(q) - b


@routine
def _q6_k(row: Any, y: Any) -> None:
    for super_block in range(y.shape[0] // 256):
        at = 210 * super_block
        d = _half(row, at + 208)
        # runs of 16 with one sub-scale each; two halves of 128 weights
        for run in range(16):
            half, block = run // 8, run % 8 // 2
            a = d * _signed(row[at + 192 + run])
            first = 16 * (run % 2)
            low = at + 64 * half + 32 * (block % 2) + first
            high = at + 128 + 32 * half + first
            low_shift, high_shift = 4 * (block // 2), 2 * block
            part = y[256 * super_block + 16 * run : 256 * super_block + 16 * run + 16]
            for i in range(16):
                q = (np.int32(row[low + i]) >> low_shift) & 15
                q |= ((np.int32(row[high + i]) >> high_shift) & 3) << 4
                part[i] = a * np.float32(q - 32)


@routine
def _f16(row: Any, y: Any) -> None:
    x = row.view(np.uint16)
    for i in range(y.shape[0]):
        y[i] = widen(x[i])


@routine
def _bf16(row: Any, y: Any) -> None:
    x = row.view(np.uint16)
    for i in range(y.shape[0]):
        y[i] = from_bits(np.int64(x[i]) << 16)


@routine
def _f32(row: Any, y: Any) -> None:
    x = row.view(np.float32)
    for i in range(y.shape[0]):
        y[i] = x[i]


@cache
def embedding(code: int) -> Kernel:
    """The kernel of a kind (a value of COMPILED): void(tokens, bytes, out, first, last).

    tokens int32 [N], bytes uint8 [rows, row bytes], out [N, cols]; a unit is a token.
    """

    def embed(tokens: Any, data: Any, out: Any, first_unit: int, last_unit: int) -> None:
        for n in range(first_unit, last_unit):
            row, y = data[tokens[n]], contiguous(out[n])
            if code == _Q8_0:
                _q8_0(row, y)
            elif code == _Q4_0:
                _q4_0(row, y)
            elif code == _Q4_K:
                _q4_or_q5_k(row, y, 0)
            elif code == _Q5_K:
                _q4_or_q5_k(row, y, 32)
            elif code == _Q6_K:
                _q6_k(row, y)
            elif code == _F16:
                _f16(row, y)
            elif code == _BF16:
                _bf16(row, y)
            else:
                _f32(row, y)

    # the bytes are usually a file, mapped for reading
    data = types.Array(types.uint8, 2, "C", readonly=True)
    signature = types.void(types.int32[::1], data, types.float32[:, :], types.intp, types.intp)
    return Kernel(embed, signature)
