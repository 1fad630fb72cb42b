"""exp, sigmoid, silu, softplus and rsqrt of one float32, from the one source text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from specla.backends.numba.jit import device
from specla.backends.numba.primitives import bits, from_bits
from specla.core.elementary_source import run_source


@device
def _where(condition: bool, yes: Any, no: Any) -> Any:
    return yes if condition else no


@device
def _to_float(i: Any) -> Any:
    return np.float32(i)


@device
def _divide(x: Any, y: Any) -> Any:
    return x / y


@device
def _square_root(x: Any) -> Any:
    return math.sqrt(x)


_functions = run_source(
    {
        "jit": device,
        "where": _where,
        "bits": bits,
        "frombits": from_bits,
        "itof": _to_float,
        "div": _divide,
        "sqrt": _square_root,
    },
    np.float32,
    np.int32,
    "numba",
)

exp: Any = _functions["exp"]
sigmoid: Any = _functions["sigmoid"]
silu: Any = _functions["silu"]
softplus: Any = _functions["softplus"]
rsqrt: Any = _functions["rsqrt"]
