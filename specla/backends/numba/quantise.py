"""Activations in int8 blocks of 32."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import bits, contiguous, from_bits

_ROUNDER = np.float32(12582912.0)  # 1.5 * 2^23: adding it rounds to an integer
_ROUNDER_BITS = np.int32(np.float32(12582912.0).view(np.int32))
_ONE = np.float32(1.0)
_TOP = np.float32(127.0)


@kernel("void(float32[:, :], int8[:, :], float32[:, :])")
def quantise(x: Any, values: Any, scale: Any) -> None:
    """See Backend.quantise. x [N, K], values [N, 32 * blocks], scale [N, blocks]."""
    cols = x.shape[1]
    for n in range(x.shape[0]):
        a, q = contiguous(x[n]), contiguous(values[n])
        for block in range(scale.shape[1]):
            start = 32 * block
            stop = min(start + 32, cols)
            # as integers, |x| has the order of floats, and NaN above all of them
            largest = np.int32(0)
            for i in range(start, stop):
                largest = max(largest, np.int32(bits(a[i]) & 0x7FFFFFFF))
            s = from_bits(largest) / _TOP
            divisor = _ONE if s == 0 else s
            for i in range(start, stop):
                quotient = a[i] / divisor
                # beyond 127 only by little (a coarse, subnormal scale), so the rounder serves
                whole = np.int32(bits(quotient + _ROUNDER) - _ROUNDER_BITS)
                whole = min(max(whole, np.int32(-127)), np.int32(127))
                q[i] = np.int8(whole) if quotient == quotient else np.int8(0)
            for i in range(stop, start + 32):
                q[i] = np.int8(0)
            scale[n, block] = s
