"""Fused multiply-add on NumPy: a * b + c rounded once.

The product of two float32 is exact in float64. Its sum with c is rounded *to odd* there: an
inexact sum takes that neighbour whose last bit is 1. Such a value lies on no rounding boundary of a
format at least two bits shorter, so rounding it again gives what one rounding of the exact sum
gives (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
rounding to odd", IEEE Transactions on Computers 57 (2008)).
"""

from __future__ import annotations

import numpy as np

from ptx.scalars import Array, round_bf16, widen_bf16


def fma32(a: Array, b: Array, c: Array) -> Array:
    """float32 a * b + c, to nearest even."""
    return _odd_sum(a, b, c).astype(np.float32)


def fma16(a: Array, b: Array, c: Array) -> Array:
    """float16 a * b + c, to nearest even."""
    return _odd_sum(a, b, c).astype(np.float16)


def fma_bf16(a: Array, b: Array, c: Array) -> Array:
    """The same of bfloat16 bits."""
    wide = _odd_sum(widen_bf16(a), widen_bf16(b), widen_bf16(c))
    narrow = wide.astype(np.float32)
    return round_bf16(_to_odd(narrow, wide - narrow.astype(np.float64)))


def _odd_sum(a: Array, b: Array, c: Array) -> Array:
    """a * b + c in float64, rounded to odd."""
    product = a.astype(np.float64) * b.astype(np.float64)
    addend = c.astype(np.float64)
    total = product + addend
    # what the addition lost, exactly (Knuth's two-sum)
    part = total - product
    lost = (product - (total - part)) + (addend - part)
    return _to_odd(total, lost)


def _to_odd(x: Array, lost: Array) -> Array:
    """x, moved towards what was lost in rounding to it if its last bit is 0."""
    even = (x.view(np.dtype(f"i{x.itemsize}")) & 1) == 0
    move = (lost != 0) & even & np.isfinite(x) & np.isfinite(lost)
    towards = np.copysign(np.array(np.inf, x.dtype), lost.astype(x.dtype))
    return np.where(move, np.nextafter(x, towards), x)
