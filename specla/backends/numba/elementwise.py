"""Kernels without a reduction. Arrays are [N, H, D] unless said otherwise; a unit is a row."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.elementary import functions
from specla.backends.numba.jit import kernel
from specla.backends.numba.lanes import over_rows
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.vector_code import address

_exp, _sigmoid = functions["exp"], functions["sigmoid"]
_silu, _softplus = functions["silu"], functions["softplus"]

_swiglu = over_rows(lambda gate, up: _silu(gate) * up)
_sigmoid_gate = over_rows(lambda x, gate: x * _sigmoid(gate))
_add = over_rows(lambda x, y: x + y)
_gates = over_rows(
    lambda alpha, dt_bias, a, beta: (_exp(_softplus(alpha + dt_bias) * a), _sigmoid(beta))
)

_THREE = "void(float32[:, :, :], float32[:, :, :], float32[:, :, :], intp, intp)"


@kernel(_THREE)
def swiglu(gate: Any, up: Any, out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.swiglu."""
    for n in range(first_unit, last_unit):
        for h in range(out.shape[1]):
            _swiglu(out.shape[2], (address(out[n, h]),), (address(gate[n, h]), address(up[n, h])))


@kernel(_THREE)
def sigmoid_gate(x: Any, gate: Any, out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.sigmoid_gate."""
    for n in range(first_unit, last_unit):
        for h in range(out.shape[1]):
            _sigmoid_gate(
                out.shape[2], (address(out[n, h]),), (address(x[n, h]), address(gate[n, h]))
            )


@kernel(_THREE)
def add(x: Any, y: Any, out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.add."""
    for n in range(first_unit, last_unit):
        for h in range(out.shape[1]):
            _add(out.shape[2], (address(out[n, h]),), (address(x[n, h]), address(y[n, h])))


@kernel(
    "void(float32[:, :], float32[:, :], float32[::1], float32[::1], float32[:, :], float32[:, :], "
    "intp, intp)"
)
def gdn_gates(
    alpha: Any,
    beta: Any,
    a: Any,
    dt_bias: Any,
    decay_out: Any,
    beta_out: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.gdn_gates. Arrays [N, value_heads]."""
    for n in range(first_unit, last_unit):
        _gates(
            alpha.shape[1],
            (address(decay_out[n]), address(beta_out[n])),
            (address(alpha[n]), address(dt_bias), address(a), address(beta[n])),
        )


@kernel("void(float32[:, :, :], int32[::1], float32[:, ::1], float32[:, ::1], intp, intp)")
def rotary(x: Any, position: Any, cos: Any, sin: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.rotary."""
    half = cos.shape[1]
    for n in range(first_unit, last_unit):
        c, s = cos[position[n]], sin[position[n]]
        for h in range(x.shape[1]):
            y = contiguous(x[n, h])
            for i in range(half):
                first, second = y[i], y[i + half]
                y[i] = first * c[i] - second * s[i]
                y[i + half] = second * c[i] + first * s[i]
