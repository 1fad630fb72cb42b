"""Kernels without a reduction. Arrays are [N, H, D] unless said otherwise."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.elementary import exp, sigmoid, silu, softplus
from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import contiguous

_THREE = "void(float32[:, :, :], float32[:, :, :], float32[:, :, :])"


@kernel(_THREE)
def swiglu(gate: Any, up: Any, out: Any) -> None:
    """See Backend.swiglu."""
    for n in range(out.shape[0]):
        for h in range(out.shape[1]):
            g, u, y = contiguous(gate[n, h]), contiguous(up[n, h]), contiguous(out[n, h])
            for i in range(y.shape[0]):
                y[i] = silu(g[i]) * u[i]


@kernel(_THREE)
def sigmoid_gate(x: Any, gate: Any, out: Any) -> None:
    """See Backend.sigmoid_gate."""
    for n in range(out.shape[0]):
        for h in range(out.shape[1]):
            a, g, y = contiguous(x[n, h]), contiguous(gate[n, h]), contiguous(out[n, h])
            for i in range(y.shape[0]):
                y[i] = a[i] * sigmoid(g[i])


@kernel(_THREE)
def add(x: Any, y: Any, out: Any) -> None:
    """See Backend.add."""
    for n in range(out.shape[0]):
        for h in range(out.shape[1]):
            a, b, c = contiguous(x[n, h]), contiguous(y[n, h]), contiguous(out[n, h])
            for i in range(c.shape[0]):
                c[i] = a[i] + b[i]


@kernel(
    "void(float32[:, :], float32[:, :], float32[::1], float32[::1], float32[:, :], float32[:, :])"
)
def gdn_gates(alpha: Any, beta: Any, a: Any, dt_bias: Any, decay_out: Any, beta_out: Any) -> None:
    """See Backend.gdn_gates. Arrays [N, value_heads]."""
    for n in range(alpha.shape[0]):
        for h in range(alpha.shape[1]):
            decay_out[n, h] = exp(softplus(alpha[n, h] + dt_bias[h]) * a[h])
            beta_out[n, h] = sigmoid(beta[n, h])


@kernel("void(float32[:, :, :], int32[::1], float32[:, ::1], float32[:, ::1])")
def rotary(x: Any, position: Any, cos: Any, sin: Any) -> None:
    """See Backend.rotary."""
    half = cos.shape[1]
    for n in range(x.shape[0]):
        at = position[n]
        for h in range(x.shape[1]):
            y = contiguous(x[n, h])
            for i in range(half):
                first, second = y[i], y[i + half]
                c, s = cos[at, i], sin[at, i]
                y[i] = first * c - second * s
                y[i + half] = second * c + first * s
