"""Fused multiply-adds against exact rational arithmetic."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ptx.fma import fma16, fma32, fma_bf16
from ptx.scalars import widen_bf16

floats = st.floats(width=32, allow_nan=False, allow_infinity=False)


def _rounded(x: Fraction, precision: int, lowest: int, highest: int) -> float:
    """To nearest even; precision in bits, exponents of the smallest and the largest unit."""
    if x == 0:
        return 0.0
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    exponent += abs(x) >= Fraction(2) ** exponent
    unit = Fraction(2) ** max(exponent - precision, lowest)
    steps = round(x / unit)  # half to even
    value = steps * unit
    limit = (2**precision - 1) * Fraction(2) ** highest
    if abs(value) > limit:
        return float("inf") if x > 0 else float("-inf")
    return float(value)


def _one(x: float) -> np.ndarray:
    return np.array([x], np.float32)


@given(floats, floats, floats)
def test_float32_is_rounded_once(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        found = float(fma32(_one(a), _one(b), _one(c))[0])
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    assert found == _rounded(exact, 24, -149, 104)


@given(st.integers(1, 2**24), st.integers(1, 2**24), st.integers(-1, 1), st.integers(-60, 40))
def test_float32_near_ties(a: int, b: int, nudge: int, scale: int) -> None:
    """Products whose tail is half a unit or next to it, and sums that cancel."""
    product = a * b
    c = -float(np.float32(product)) + nudge
    x, y, z = np.float32(a * 2.0**scale), np.float32(b), np.float32(c * 2.0**scale)
    with np.errstate(all="ignore"):
        found = float(fma32(x[None], y[None], z[None])[0])
    exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
    assert found == _rounded(exact, 24, -149, 104)


def test_two_roundings_differ() -> None:
    """The case that makes fusion visible: the product's tail survives only inside an fma."""
    a, c = _one(1 + 2**-12), _one(-1 - 2**-11)
    assert fma32(a, a, c)[0] == np.float32(2**-24)
    assert (a * a + c)[0] == 0


@given(*[st.floats(width=16, allow_nan=False, allow_infinity=False)] * 3)
def test_float16_is_rounded_once(a: float, b: float, c: float) -> None:
    with np.errstate(all="ignore"):
        found = float(fma16(*(np.array([x], np.float16) for x in (a, b, c)))[0])
    assert found == _rounded(Fraction(a) * Fraction(b) + Fraction(c), 11, -24, 5)


@given(*[st.integers(0, 0xFFFF)] * 3)
def test_bfloat16_is_rounded_once(a: int, b: int, c: int) -> None:
    bits = [np.array([x], np.uint16) for x in (a, b, c)]
    values = [float(widen_bf16(x)[0]) for x in bits]
    if not np.isfinite(values).all():
        return
    with np.errstate(all="ignore"):
        found = float(widen_bf16(fma_bf16(*bits))[0])
    exact = Fraction(values[0]) * Fraction(values[1]) + Fraction(values[2])
    assert found == _rounded(exact, 8, -133, 120)


@pytest.mark.parametrize(
    ("a", "b", "c", "wanted"),
    [
        (np.inf, 0.0, 1.0, np.nan),
        (np.inf, 1.0, -np.inf, np.nan),
        (np.inf, -2.0, 5.0, -np.inf),
        (3e38, 3e38, -np.inf, -np.inf),
        (1.0, -0.0, -0.0, -0.0),
        (1.0, 0.0, -0.0, 0.0),
    ],
)
def test_special_values(a: float, b: float, c: float, wanted: float) -> None:
    with np.errstate(all="ignore"):
        found = fma32(_one(a), _one(b), _one(c))
    assert np.array_equal(found, _one(wanted), equal_nan=True)
    assert np.signbit(found[0]) == np.signbit(wanted) or np.isnan(wanted)
