"""RMSNorm, its gated form, and the L2 norm. All arrays as [N, H, D]; units are rows by heads."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.elementary import rsqrt, silu
from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.sums import power_of_two, tree_of_squares


@kernel("void(float32[:, :, :], float32[::1], float32, float32[:, :, :], intp, intp)")
def rms_norm(x: Any, weight: Any, eps: Any, out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.rms_norm."""
    heads, size = x.shape[1:]
    scratch = np.empty(power_of_two(size), np.float32)
    for unit in range(first_unit, last_unit):
        n, h = unit // heads, unit % heads
        a, y = contiguous(x[n, h]), contiguous(out[n, h])
        r = rsqrt(tree_of_squares(a, scratch) / np.float32(size) + eps)
        for i in range(size):
            y[i] = (a[i] * r) * weight[i]


@kernel(
    "void(float32[:, :, :], float32[:, :, :], float32[::1], float32, float32[:, :, :], intp, intp)"
)
def gated_rms_norm(
    x: Any, gate: Any, weight: Any, eps: Any, out: Any, first_unit: int, last_unit: int
) -> None:
    """See Backend.gated_rms_norm."""
    heads, size = x.shape[1:]
    scratch = np.empty(power_of_two(size), np.float32)
    for unit in range(first_unit, last_unit):
        n, h = unit // heads, unit % heads
        a, z, y = contiguous(x[n, h]), contiguous(gate[n, h]), contiguous(out[n, h])
        r = rsqrt(tree_of_squares(a, scratch) / np.float32(size) + eps)
        for i in range(size):
            y[i] = ((a[i] * r) * weight[i]) * silu(z[i])


@kernel("void(float32[:, :, :], float32, float32, float32[:, :, :], intp, intp)")
def l2_norm(x: Any, eps: Any, scale: Any, out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.l2_norm."""
    heads, size = x.shape[1:]
    scratch = np.empty(power_of_two(size), np.float32)
    for unit in range(first_unit, last_unit):
        n, h = unit // heads, unit % heads
        a, y = contiguous(x[n, h]), contiguous(out[n, h])
        r = rsqrt(tree_of_squares(a, scratch) + eps)
        for i in range(size):
            y[i] = (a[i] * r) * scale
