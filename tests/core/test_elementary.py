"""The elementary functions: pinned bits, measured accuracy, special values, scalars as arrays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.core import elementary
from specla.core.elementary_source import FUNCTIONS, run_source

NAN = 0x7FC00000
INF = float("inf")

# input bits, then the bits of each function of FUNCTIONS; NaN payloads are not pinned
GOLDEN = [
    (0x00000000, 0x3F800000, 0x3F000000, 0x00000000, 0x3F317218, 0xFF800000, 0x7F800000),  # 0.0
    (0x80000000, 0x3F800000, 0x3F000000, 0x80000000, 0x3F317218, 0xFF800000, 0xFF800000),  # -0.0
    (0x00000001, 0x3F800000, 0x3F000000, 0x00000000, 0x3F317218, 0xC2CE8ED0, 0x64B504F3),  # 1e-45
    (0x80000001, 0x3F800000, 0x3F000000, 0x80000000, 0x3F317218, NAN, NAN),  # -1e-45
    (
        0x007FFFFF,
        0x3F800000,
        0x3F000000,
        0x00400000,
        0x3F317218,
        0xC2AEAC50,
        0x5F000001,
    ),  # 1.1754942e-38
    (
        0x00800000,
        0x3F800000,
        0x3F000000,
        0x00400000,
        0x3F317218,
        0xC2AEAC50,
        0x5F000000,
    ),  # 1.1754944e-38
    (0x7F800000, 0x7F800000, 0x3F800000, 0x7F800000, 0x7F800000, 0x7F800000, 0x00000000),  # inf
    (0xFF800000, 0x00000000, 0x00000000, NAN, 0x00000000, NAN, NAN),  # -inf
    (0x7FC00000, NAN, NAN, NAN, NAN, NAN, NAN),  # nan
    (0x3F800000, 0x402DF854, 0x3F3B26A8, 0x3F3B26A8, 0x3FA818F6, 0x00000000, 0x3F800000),  # 1.0
    (0xBF800000, 0x3EBC5AB2, 0x3E89B2B1, 0xBE89B2B1, 0x3EA063D7, NAN, NAN),  # -1.0
    (
        0x40490FDB,
        0x41B92024,
        0x3F75653F,
        0x4040BBB1,
        0x404BC500,
        0x3F928683,
        0x3F106EBA,
    ),  # 3.1415927
    (0xC0490FDB, 0x3D310113, 0x3D29AC08, 0xBE054295, 0x3D2D4953, NAN, NAN),  # -3.1415927
    (0x41A00000, 0x4DE75844, 0x3F800000, 0x41A00000, 0x41A00000, 0x403FBA14, 0x3E64F92E),  # 20.0
    (
        0x41A00001,
        0x4DE75861,
        0x3F800000,
        0x41A00001,
        0x41A00001,
        0x403FBA14,
        0x3E64F92E,
    ),  # 20.000002
    (0xC1A00000, 0x310DA433, 0x310DA433, 0xB3310D40, 0x310DA433, NAN, NAN),  # -20.0
    (0x42B20000, 0x7F800000, 0x3F800000, 0x42B20000, 0x42B20000, 0x408FA2E9, 0x3DD9166B),  # 89.0
    (
        0x42B17217,
        0x7F7FFF84,
        0x3F800000,
        0x42B17217,
        0x42B17217,
        0x408F895C,
        0x3DD96D27,
    ),  # 88.72283
    (
        0x42B17218,
        0x7F800000,
        0x3F800000,
        0x42B17218,
        0x42B17218,
        0x408F895C,
        0x3DD96D27,
    ),  # 88.72284
    (0xC2D00000, 0x00000000, 0x00000000, 0x80000000, 0x00000000, NAN, NAN),  # -104.0
    (0xC2CFFFFF, 0x00000000, 0x00000000, 0x80000000, 0x00000000, NAN, NAN),  # -103.99999
    (0xC2CE8ED0, 0x00000001, 0x00000001, 0x80000067, 0x00000000, NAN, NAN),  # -103.27893
    (0xC2AEAC50, 0x007FFFE6, 0x007FFFE6, 0x83AEAC2D, 0x007FFFE6, NAN, NAN),  # -87.33655
    (
        0x7F7FFFFF,
        0x7F800000,
        0x3F800000,
        0x7F7FFFFF,
        0x7F7FFFFF,
        0x42B17218,
        0x1F800001,
    ),  # 3.4028235e+38
    (0xFF7FFFFF, 0x00000000, 0x00000000, 0x80000000, 0x00000000, NAN, NAN),  # -3.4028235e+38
    (
        0x33800000,
        0x3F800000,
        0x3F000000,
        0x33000000,
        0x3F317218,
        0xC1851592,
        0x45800000,
    ),  # 5.9604645e-08
    (0xB3800000, 0x3F7FFFFF, 0x3EFFFFFF, 0xB2FFFFFF, 0x3F317217, NAN, NAN),  # -5.9604645e-08
    (
        0x3F317218,
        0x40000000,
        0x3F2AAAAB,
        0x3EEC9820,
        0x3F8C9F54,
        0xBEBBA795,
        0x3F99BE61,
    ),  # 0.6931472
    (
        0x3F7FFFFF,
        0x402DF854,
        0x3F3B26A8,
        0x3F3B26A7,
        0x3FA818F5,
        0xB3800000,
        0x3F800001,
    ),  # 0.99999994
    (
        0x00000777,
        0x3F800000,
        0x3F000000,
        0x000003BC,
        0x3F317218,
        0xC2BF7275,
        0x6204823E,
    ),  # 2.678e-42
    (0x42F6E979, 0x7F800000, 0x3F800000, 0x42F6E979, 0x42F6E979, 0x409A1BBA, 0x3DB85212),  # 123.456
]


def as_float(bits: list[int] | np.ndarray) -> np.ndarray:
    return np.array(bits, dtype=np.uint32).view(np.float32)


def as_bits(x: np.ndarray) -> np.ndarray:
    """Bits, with every NaN alike."""
    return np.where(np.isnan(x), np.uint32(NAN), np.asarray(x).view(np.uint32))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_bits_are_pinned(name: str) -> None:
    column = 1 + FUNCTIONS.index(name)
    found = as_bits(getattr(elementary, name)(as_float([row[0] for row in GOLDEN])))
    wanted = [row[column] for row in GOLDEN]
    assert [hex(b) for b in found] == [hex(b) for b in wanted]


def sigmoid64(x: np.ndarray) -> np.ndarray:
    e = np.exp(-np.abs(x))
    return np.where(x < 0, e, 1) / (1 + e)


EXACT: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "exp": np.exp,
    "sigmoid": sigmoid64,
    "silu": lambda x: x * sigmoid64(x),
    "softplus": lambda x: np.logaddexp(0, x),
    "log": np.log,
    "rsqrt": lambda x: 1 / np.sqrt(x),
}
# largest error in ulp over the samples below: measured 0.98, 2.13, 3.16, 2.69, 1.85, 1.50
BOUND = {"exp": 1.0, "sigmoid": 2.2, "silu": 3.25, "softplus": 2.75, "log": 1.9, "rsqrt": 1.5}
RANGE = {"exp": (-103.9, 88.7), "sigmoid": (-100, 100), "silu": (-87, 100), "softplus": (-103, 100)}


def samples(name: str) -> np.ndarray:
    """Dense: all exponents of positive floats, or the range in which results are finite."""
    if name not in RANGE:
        return as_float(np.arange(1, 0x7F800000, 4099))
    rng = np.random.default_rng(0)
    small = np.exp(rng.uniform(-80, 0, 50_000))
    parts = [np.linspace(*RANGE[name], 300_007), rng.standard_normal(100_000), small, -small]
    return np.concatenate(parts).astype(np.float32)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_accuracy(name: str) -> None:
    x = samples(name)
    with np.errstate(all="ignore"):
        exact = EXACT[name](x.astype(np.float64))
        ulp = np.abs(np.spacing(exact.astype(np.float32))).astype(np.float64)
    found = getattr(elementary, name)(x).astype(np.float64)
    worst = (np.abs(found - exact) / ulp).max()
    # from below too: a better implementation would be another contract
    assert 0.5 < worst <= BOUND[name]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scalars_arrays_and_strides_have_the_same_bits(name: str) -> None:
    function = getattr(elementary, name)
    rng = np.random.default_rng(1)
    x = as_float(rng.integers(0, 2**32, 400, dtype=np.uint32))
    whole = as_bits(function(x))
    assert [int(as_bits(function(v))) for v in x] == whole.tolist()
    assert [int(as_bits(function(x[i : i + 1]))[0]) for i in range(400)] == whole.tolist()
    assert np.array_equal(as_bits(function(x.reshape(20, 20).T)), whole.reshape(20, 20).T)
    assert np.array_equal(as_bits(function(x[::-3])), whole[::-3])
    assert function(x).dtype == np.float32 and function(x[0]).dtype == np.float32


@given(st.floats(width=32))
def test_functions_are_total(x: float) -> None:
    v = np.array([x], dtype=np.float32)
    for name in FUNCTIONS:
        y = float(getattr(elementary, name)(v)[0])
        if name in ("exp", "sigmoid", "softplus"):
            assert y >= 0 or np.isnan(x)
        if name == "sigmoid":
            assert y <= 1 or np.isnan(x)
        if name in ("log", "rsqrt"):
            assert np.isnan(y) == (np.isnan(x) or x < 0)
        elif not np.isnan(x) and not (name == "silu" and x == -INF):
            assert not np.isnan(y)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "softplus", "log"])
def test_monotone(name: str) -> None:
    # between points further apart than the error, and across all reduction boundaries of exp
    steps = np.linspace(0.01, 88, 20_001).astype(np.float32)
    x = steps if name == "log" else np.concatenate([-steps[::-1], steps])
    y = getattr(elementary, name)(x)
    assert (np.diff(y) >= 0).all()
    k = np.arange(-120, 120)
    edge = ((k + 0.5) * np.log(2)).astype(np.float32)
    if name == "exp":
        beside = [np.nextafter(edge, np.float32(s * 1000)) for s in (-1, 1)]
        low, mid, high = (
            elementary.exp(v).astype(np.float64) for v in (beside[0], edge, beside[1])
        )
        assert (low <= mid * (1 + 1e-7)).all() and (mid <= high * (1 + 1e-7)).all()


def test_no_warnings(recwarn: pytest.WarningsRecorder) -> None:
    x = as_float([0x7F800000, 0xFF800000, NAN, 1, 0x7F7FFFFF, 0x80000000])
    for name in FUNCTIONS:
        getattr(elementary, name)(x)
        for value in x:
            getattr(elementary, name)(value)
    assert not recwarn.list


def test_inputs_are_not_written() -> None:
    x = np.linspace(-5, 5, 64, dtype=np.float32)
    kept = x.copy()
    for name in FUNCTIONS:
        getattr(elementary, name)(x)
    assert x.tobytes() == kept.tobytes()


def test_the_source_runs_in_another_language() -> None:
    """Plain float64 Python: the same text, close to the same values."""
    import math
    import struct

    def bits(x: float) -> int:
        return struct.unpack("<i", struct.pack("<f", x))[0]

    def frombits(i: int) -> float:
        return struct.unpack("<f", struct.pack("<i", i))[0]

    primitives = {
        "jit": lambda f: f,
        "where": lambda c, a, b: a if c else b,
        "bits": bits,
        "frombits": frombits,
        "itof": float,
        "div": lambda a, b: a / b,
        "sqrt": math.sqrt,
    }
    # log and rsqrt only: the rounding trick of exp needs float32 addition
    found = run_source(primitives, float, int, "python")
    for x in (0.3, 1.0, 7.5, 1e-3, 123.0):
        assert math.isclose(found["log"](x), math.log(x), rel_tol=1e-5)
        assert math.isclose(found["rsqrt"](x), x**-0.5, rel_tol=1e-12)
    assert set(FUNCTIONS) <= set(found)
