"""RMSNorm, its gated form, and the L2 norm. All arrays as [N, H, D]."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.elementary import rsqrt, silu
from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.sums import power_of_two, tree_of_squares


@kernel("void(float32[:, :, :], float32[::1], float32, float32[:, :, :])")
def rms_norm(x: Any, weight: Any, eps: Any, out: Any) -> None:
    """See Backend.rms_norm."""
    rows, heads, size = x.shape
    scratch = np.empty(power_of_two(size), np.float32)
    for n in range(rows):
        for h in range(heads):
            a, y = contiguous(x[n, h]), contiguous(out[n, h])
            r = rsqrt(tree_of_squares(a, scratch) / np.float32(size) + eps)
            for i in range(size):
                y[i] = (a[i] * r) * weight[i]


@kernel("void(float32[:, :, :], float32[:, :, :], float32[::1], float32, float32[:, :, :])")
def gated_rms_norm(x: Any, gate: Any, weight: Any, eps: Any, out: Any) -> None:
    """See Backend.gated_rms_norm."""
    rows, heads, size = x.shape
    scratch = np.empty(power_of_two(size), np.float32)
    for n in range(rows):
        for h in range(heads):
            a, z, y = contiguous(x[n, h]), contiguous(gate[n, h]), contiguous(out[n, h])
            r = rsqrt(tree_of_squares(a, scratch) / np.float32(size) + eps)
            for i in range(size):
                y[i] = ((a[i] * r) * weight[i]) * silu(z[i])


@kernel("void(float32[:, :, :], float32, float32, float32[:, :, :])")
def l2_norm(x: Any, eps: Any, scale: Any, out: Any) -> None:
    """See Backend.l2_norm."""
    rows, heads, size = x.shape
    scratch = np.empty(power_of_two(size), np.float32)
    for n in range(rows):
        for h in range(heads):
            a, y = contiguous(x[n, h]), contiguous(out[n, h])
            r = rsqrt(tree_of_squares(a, scratch) + eps)
            for i in range(size):
                y[i] = (a[i] * r) * scale
