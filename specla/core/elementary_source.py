"""The one source text of exp, sigmoid, silu, softplus, log and rsqrt (docs/arithmetic.md, 1).

Every backend executes this same text in its own language (NumPy arrays, Numba scalars, Triton
tiles), so the functions have the same bits everywhere. Each ``+ - * div sqrt`` below is ONE IEEE
binary32 operation, rounded to nearest even: no contraction, no re-association, subnormals kept.

A backend supplies seven primitives and the constants, then runs ``SOURCE``:

``jit``        decorator for a function of the text (identity in NumPy)
``where``      elementwise choice
``bits``       float32 -> int32, same bits
``frombits``   int32 -> float32, same bits
``itof``       int32 -> float32, by value
``div, sqrt``  correctly rounded division and square root

Method: exp by Cody-Waite reduction and a degree-6 polynomial, scaled in two exact steps so that
subnormal results are rounded once; log and log1p through ``2 atanh(s)``.
"""

from __future__ import annotations

import linecache
from collections.abc import Callable
from typing import Any

import numpy as np

FUNCTIONS = ("exp", "sigmoid", "silu", "softplus", "log", "rsqrt")


def _f32(value: float) -> float:
    return float(np.float32(value))


FLOATS: dict[str, float] = {
    # beyond these the result is exactly 0 or inf
    "EXP_MIN": _f32(-104.0),
    "EXP_MAX": _f32(89.0),
    "LOG2_E": _f32(1.4426950408889634),
    # adding 1.5 * 2^23 leaves the nearest integer in the low mantissa bits
    "ROUNDER": _f32(12582912.0),
    # ln 2 in two parts; products of the first with |k| <= 256 are exact
    "LN2_HIGH": _f32(0.693359375),
    "LN2_LOW": _f32(-2.12194440e-4),
    # e^r = 1 + r + r^2 (E0 + E1 r + ...), |r| <= ln2 / 2
    "E0": _f32(0.5000000120),
    "E1": _f32(0.16666665459),
    "E2": _f32(4.1665795894e-2),
    "E3": _f32(8.3334519073e-3),
    "E4": _f32(1.3981999507e-3),
    "E5": _f32(1.9875691500e-4),
    # 2 atanh(s) = 2 s + s z (A1 + z (A2 + ...)), z = s^2
    "A1": _f32(2 / 3),
    "A2": _f32(2 / 5),
    "A3": _f32(2 / 7),
    "A4": _f32(2 / 9),
    "A5": _f32(2 / 11),
    "A6": _f32(2 / 13),
    "SQRT_HALF": _f32(0.7071067811865476),
    "SMALLEST_NORMAL": 2.0**-126,
    "TWO_24": 2.0**24,
    "F24": 24.0,
    "ZERO": 0.0,
    "ONE": 1.0,
    "TWO": 2.0,
    "TWENTY": 20.0,
    "INF": float("inf"),
    "MINUS_INF": float("-inf"),
    "NAN": float("nan"),
}

INTS: dict[str, int] = {
    "ROUNDER_BITS": int(np.float32(12582912.0).view(np.int32)),
    "MANTISSA": 0x007FFFFF,
    "HALF_BITS": 0x3F000000,
}

SOURCE = """
@jit
def exp(x):
    c = where(x < EXP_MIN, EXP_MIN, x)
    c = where(c > EXP_MAX, EXP_MAX, c)
    t = c * LOG2_E + ROUNDER
    n = t - ROUNDER
    r = c - n * LN2_HIGH
    r = r - n * LN2_LOW
    p = r * E5 + E4
    p = p * r + E3
    p = p * r + E2
    p = p * r + E1
    p = p * r + E0
    p = p * (r * r) + r
    p = p + ONE
    k = bits(t) - ROUNDER_BITS
    k1 = k >> 1
    k2 = k - k1
    y = (p * frombits((k1 + 127) << 23)) * frombits((k2 + 127) << 23)
    return where(x == x, y, x)

@jit
def sigmoid(x):
    e = exp(where(x < ZERO, x, ZERO - x))
    top = where(x < ZERO, e, ONE)
    return div(top, e + ONE)

@jit
def silu(x):
    return x * sigmoid(x)

@jit
def twice_atanh(s):
    z = s * s
    p = z * A6 + A5
    p = p * z + A4
    p = p * z + A3
    p = p * z + A2
    p = p * z + A1
    return (p * z) * s + (s + s)

@jit
def log1p_unit(u):
    return twice_atanh(div(u, u + TWO))

@jit
def softplus(x):
    tail = log1p_unit(exp(where(x < ZERO, x, ZERO - x)))
    positive = where(x > ZERO, x, ZERO)
    y = where(x > TWENTY, x, positive + tail)
    return where(x == x, y, x)

@jit
def log(x):
    subnormal = x < SMALLEST_NORMAL
    scaled = where(subnormal, x * TWO_24, x)
    b = bits(scaled)
    k = (b >> 23) - 126
    m = frombits((b & MANTISSA) | HALF_BITS)
    low = m < SQRT_HALF
    m = where(low, m + m, m)
    e = itof(k) - where(low, ONE, ZERO)
    e = e - where(subnormal, F24, ZERO)
    y = e * LN2_HIGH + (e * LN2_LOW + twice_atanh(div(m - ONE, m + ONE)))
    y = where(x == ZERO, MINUS_INF, y)
    y = where(x == INF, INF, y)
    y = where(x < ZERO, NAN, y)
    return where(x == x, y, x)

@jit
def rsqrt(x):
    return div(ONE, sqrt(x))
"""


def run_source(
    primitives: dict[str, Any],
    float_constant: Callable[[float], Any],
    int_constant: Callable[[int], Any],
    language: str,
) -> dict[str, Any]:
    """Execute ``SOURCE`` over a backend's primitives; return the namespace with the functions.

    primitives: the seven names of the module docstring. float_constant, int_constant: wrap a
    constant in the backend's scalar type. language: shown as the file name in tracebacks.
    """
    filename = f"<specla elementary functions: {language}>"
    # compilers that read a function's source (Triton, Numba) find it here
    linecache.cache[filename] = (len(SOURCE), None, SOURCE.splitlines(True), filename)
    namespace: dict[str, Any] = {name: float_constant(v) for name, v in FLOATS.items()}
    namespace.update({name: int_constant(v) for name, v in INTS.items()})
    namespace.update(primitives)
    exec(compile(SOURCE, filename, "exec"), namespace)
    return namespace
