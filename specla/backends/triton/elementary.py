"""exp, sigmoid, silu, softplus, log and rsqrt from the shared source text, as Triton functions."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.core.elementary_source import run_source


@triton.jit
def _bits(x):
    return x.to(tl.int32, bitcast=True)


@triton.jit
def _frombits(i):
    return i.to(tl.float32, bitcast=True)


@triton.jit
def _itof(i):
    return i.to(tl.float32)


@triton.jit
def _div(a, b):
    # div_rn wants two tensors of one shape; adding zeros would lose the sign of -0.0
    return tl.math.div_rn(tl.where(b == b, a, a), b)


@triton.jit
def _sqrt(a):
    return tl.math.sqrt_rn(a)


@triton.jit
def _where(c, a, b):
    return tl.where(c, a, b)


def _made() -> dict[str, Any]:
    primitives = {
        "jit": triton.jit,
        "where": _where,
        "bits": _bits,
        "frombits": _frombits,
        "itof": _itof,
        "div": _div,
        "sqrt": _sqrt,
    }
    # the compiler asks a jitted function for its module, which is the namespace's name
    namespace = {**primitives, "tl": tl, "__name__": __name__}
    return run_source(namespace, tl.constexpr, tl.constexpr, "Triton")


_NAMESPACE = _made()
exp = _NAMESPACE["exp"]
sigmoid = _NAMESPACE["sigmoid"]
silu = _NAMESPACE["silu"]
softplus = _NAMESPACE["softplus"]
log = _NAMESPACE["log"]
rsqrt = _NAMESPACE["rsqrt"]
div = _div
