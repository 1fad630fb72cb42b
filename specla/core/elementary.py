"""exp, sigmoid, silu, softplus, log and rsqrt on float32 NumPy arrays, by the number contract.

Same bits on every machine and backend: see elementary_source.py. NumPy's own functions differ in
the last bit between releases and processors.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from specla.core.elementary_source import run_source

Float32 = npt.NDArray[np.float32]


def _bits(x: Any) -> Any:
    return x.view(np.int32)


def _from_bits(i: Any) -> Any:
    return i.view(np.float32)


def _same(function: Any) -> Any:
    return function


_functions = run_source(
    {
        "jit": _same,
        "where": np.where,
        "bits": _bits,
        "frombits": _from_bits,
        "itof": lambda i: i.astype(np.float32),
        "div": np.divide,
        "sqrt": np.sqrt,
    },
    np.float32,
    np.int32,
    "numpy",
)


def _call(name: str, x: Float32) -> Float32:
    x = np.asarray(x, dtype=np.float32)
    # infinities, NaN and subnormals are values here, not accidents
    with np.errstate(all="ignore"):
        # at least one axis: older NumPy can't reinterpret the bits of a scalar
        y: Float32 = _functions[name](np.atleast_1d(x)).reshape(x.shape)
    return y


def exp(x: Float32) -> Float32:
    """e**x; subnormal results rounded once, overflow to inf, NaN stays NaN."""
    return _call("exp", x)


def sigmoid(x: Float32) -> Float32:
    """1 / (1 + e**-x), without overflow on either side."""
    return _call("sigmoid", x)


def silu(x: Float32) -> Float32:
    """x * sigmoid(x)."""
    return _call("silu", x)


def softplus(x: Float32) -> Float32:
    """log(1 + e**x); x itself above 20."""
    return _call("softplus", x)


def log(x: Float32) -> Float32:
    """Natural logarithm; -inf at 0, NaN below."""
    return _call("log", x)


def rsqrt(x: Float32) -> Float32:
    """1 / sqrt(x): two correctly rounded operations."""
    return _call("rsqrt", x)
