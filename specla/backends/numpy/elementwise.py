"""Kernels without a reduction: gates, activations, rotary position embedding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.backends.base import RotaryTable
from specla.core.elementary import exp, sigmoid, silu, softplus

Float32 = npt.NDArray[np.float32]


@np.errstate(all="ignore")
def swiglu(gate: Float32, up: Float32, out: Float32) -> None:
    """See Backend.swiglu."""
    out[...] = silu(gate) * up


@np.errstate(all="ignore")
def sigmoid_gate(x: Float32, gate: Float32, out: Float32) -> None:
    """See Backend.sigmoid_gate."""
    out[...] = x * sigmoid(gate)


@np.errstate(all="ignore")
def add(x: Float32, y: Float32, out: Float32) -> None:
    """See Backend.add."""
    np.add(x, y, out=out)


@np.errstate(all="ignore")
def gdn_gates(
    alpha: Float32,
    beta: Float32,
    a: Float32,
    dt_bias: Float32,
    decay_out: Float32,
    beta_out: Float32,
) -> None:
    """See Backend.gdn_gates."""
    decay_out[...] = exp(softplus(alpha + dt_bias) * a)
    beta_out[...] = sigmoid(beta)


@np.errstate(all="ignore")
def rotary(x: Float32, position: npt.NDArray[np.int32], table: RotaryTable) -> None:
    """See Backend.rotary."""
    half = table.cos.shape[1]
    cos = table.cos[position][:, None, :]
    sin = table.sin[position][:, None, :]
    first = x[..., :half].copy()
    second = x[..., half : 2 * half].copy()
    x[..., :half] = first * cos - second * sin
    x[..., half : 2 * half] = second * cos + first * sin
