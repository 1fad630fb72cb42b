"""Quantisation of activations and weight products against naive integer and float loops."""

from __future__ import annotations

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import equal, filled, normal, quantised_rows
from support.oracle import F32, blocked_sum, tree_sum

from specla.backends.base import QuantisedRows
from specla.backends.blocks import NATIVE, unpack
from specla.backends.numpy import products
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.weights import WeightSource
from specla.testing.kernels.products import SCALES_AT

backend = NumpyBackend()


def quantised(x: np.ndarray) -> QuantisedRows:
    rows = quantised_rows(backend, x)
    backend.quantise(x, rows)
    return rows


def naive_quantise(row: np.ndarray) -> tuple[list[int], list[np.float32]]:
    values: list[int] = []
    scales: list[np.float32] = []
    for start in range(0, len(row), 32):
        block = [F32(v) for v in row[start : start + 32]]
        block += [F32(0)] * (32 - len(block))
        with np.errstate(all="ignore"):
            biggest = F32(np.nan) if any(np.isnan(block)) else max(abs(v) for v in block)
            scale = F32(biggest / F32(127))
            for v in block:
                quotient = F32(v / (scale if scale != 0 else F32(1)))
                if np.isnan(quotient):
                    values.append(0)
                else:
                    # round() rounds half to even
                    values.append(max(-127, min(127, round(max(-1e6, min(1e6, float(quotient)))))))
        scales.append(scale)
    return values, scales


def check_quantise(x: np.ndarray) -> None:
    found = quantised(x)
    for n, row in enumerate(x):
        values, scales = naive_quantise(row)
        assert found.values[n].tolist() == values
        assert equal(found.scale[n], np.array(scales, dtype=F32))
        halves = np.array(values, dtype=np.int16).reshape(-1, 2, 16)
        assert equal(found.sums[n], halves.sum(axis=2, dtype=np.int16))


@given(n=st.integers(1, 4), k=st.integers(1, 100), seed=st.integers(0, 2**32 - 1))
def test_quantise(n: int, k: int, seed: int) -> None:
    check_quantise(normal(np.random.default_rng(seed), n, k))


@given(st.lists(st.floats(width=32), min_size=1, max_size=70))
def test_quantise_any_float(row: list[float]) -> None:
    check_quantise(np.array([row], dtype=F32))


def test_quantise_by_hand() -> None:
    x = np.zeros((6, 32), dtype=F32)
    x[0, 0] = -0.0
    x[1, :6] = [127, 0.5, 1.5, 2.5, -0.5, -2.5]  # scale 1: halves go to even
    x[2, :3] = [1e-45, -1e-45, 0]  # the scale rounds to zero
    x[3, :3] = [np.inf, -np.inf, 3]
    x[4, :2] = [np.nan, 5]
    x[5, :3] = [1.8e-43, 1.4e-45, -1.8e-43]  # 128 smallest subnormals: the scale is one of them
    found = quantised(x)
    assert found.values[0].tolist() == [0] * 32
    assert found.scale[0].tobytes() == F32(0).tobytes()
    assert found.values[1, :6].tolist() == [127, 0, 2, 2, 0, -2]
    assert found.scale[1, 0] == 1
    assert found.values[2].tolist() == [0] * 32 and found.scale[2, 0] == 0
    assert found.values[3].tolist() == [0] * 32 and found.scale[3, 0] == np.inf
    assert found.values[4].tolist() == [0] * 32 and np.isnan(found.scale[4, 0])
    assert found.values[5, :3].tolist() == [127, 1, -127], "saturates, never wraps"
    check_quantise(x)


def test_quantised_values_never_reach_minus_128() -> None:
    x = np.array([[-(2.0**-140)] + [2.0**-149] * 31], dtype=F32)
    x = np.concatenate([x, -np.abs(normal(np.random.default_rng(0), 50, 32))[:, :32]])
    assert quantised(x).values.min() >= -127


def random_source(rng: np.random.Generator, kind: str, rows: int, blocks: int) -> WeightSource:
    """Any bits, with finite scales of ordinary size."""
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = rng.integers(0, 256, (rows, blocks, size_bytes), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        scale = rng.standard_normal((rows, blocks, 1)).astype(np.float16)
        data[:, :, at : at + 2] = scale.view(np.uint8)
    return WeightSource("w", kind, rows, size * blocks, data.reshape(rows, -1))


def naive_linear_quantised(x: QuantisedRows, source: WeightSource) -> np.ndarray:
    """Python integers inside a block, float32 in the written order across blocks."""
    w = unpack(source.kind, source.data, source.cols)
    out = np.empty((len(x.values), source.rows), dtype=F32)
    for n, m in np.ndindex(*out.shape):
        terms = []
        for b in range(source.cols // 32):
            q = [int(v) for v in x.values[n, 32 * b : 32 * b + 32]]
            s = x.scale[n, b]
            total = sum(int(a) * c for a, c in zip(w.values[m, b], q, strict=True))
            assert abs(total) < 2**24
            term = F32(F32(total) * F32(w.scale[m, b] * s))
            if w.min_value is not None and w.min_scale is not None:
                offset = F32(int(w.min_value[m, b]) * sum(q))
                term = F32(term - F32(offset * F32(w.min_scale[m, b] * s)))
            terms.append(term)
        out[n, m] = blocked_sum(terms)
    return out


@pytest.mark.parametrize("kind", NATIVE)
@settings(max_examples=12)
@given(
    n=st.integers(1, 3),
    rows=st.integers(1, 6),
    blocks=st.integers(1, 11),
    seed=st.integers(0, 2**32 - 1),
)
def test_linear_quantised(kind: str, n: int, rows: int, blocks: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = random_source(rng, kind, rows, blocks if "_K" not in kind else 1 + blocks % 3)
    weight = backend.load(source)
    assert weight.quantised and weight.source is source
    x = quantised(normal(rng, n, source.cols))
    out = filled(n, rows)
    backend.linear_quantised(x, weight, out)
    assert equal(out, naive_linear_quantised(x, source))


@pytest.mark.parametrize("kind", NATIVE)
def test_linear_quantised_extremes(kind: str) -> None:
    """The largest integers: every weight and activation at its limit, all signs alike."""
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    for fill in (0x00, 0x7F, 0x80, 0xFF):
        data = np.full((2, 1, size_bytes), fill, dtype=np.uint8)
        for at in SCALES_AT[kind]:
            data[:, :, at : at + 2] = np.array([1.0], dtype=np.float16).view(np.uint8)
        source = WeightSource("w", kind, 2, size, data.reshape(2, -1))
        for value in (127, -127):
            x = quantised_rows(backend, np.empty((1, size)))
            x.values[...], x.scale[...] = value, 1
            out = filled(1, 2)
            backend.linear_quantised(x, backend.load(source), out)
            assert equal(out, naive_linear_quantised(x, source))


def test_tiles_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    for kind, cols in (("Q8_0", 96), ("F32", 70)):
        if kind == "F32":
            source = float_source(normal(rng, 37, cols))
        else:
            source = random_source(rng, kind, 37, cols // 32)
        weight, x = backend.load(source), normal(rng, 4, cols)
        results = []
        for tile in (products._TILE_FLOATS, 12 * 5, 1):
            monkeypatch.setattr(products, "_TILE_FLOATS", tile)
            out = filled(4, 37)
            if weight.quantised:
                backend.linear_quantised(quantised(x), weight, out)
            else:
                backend.linear_float(x, weight, out)
            results.append(out)
        assert equal(results[0], results[1]) and equal(results[0], results[2])


def float_source(values: np.ndarray, kind: str = "F32") -> WeightSource:
    if kind == "BF16":
        data = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        data = values.astype(np.float16 if kind == "F16" else np.float32)
    rows, cols = values.shape
    return WeightSource("w", kind, rows, cols, data.view(np.uint8).reshape(rows, -1))


def widened(source: WeightSource) -> np.ndarray:
    if source.kind == "F32":
        return source.data.view(F32)
    if source.kind == "F16":
        return source.data.view(np.float16).astype(F32)
    return (source.data.view(np.uint16).astype(np.uint32) << 16).view(F32)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16"])
@settings(max_examples=15)
@given(
    n=st.integers(1, 3),
    rows=st.integers(1, 5),
    cols=st.integers(1, 330),
    seed=st.integers(0, 2**32 - 1),
)
def test_linear_float(kind: str, n: int, rows: int, cols: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    source = float_source(normal(rng, rows, cols), kind)
    w, x = widened(source), normal(rng, n, cols)
    weight = backend.load(source)
    assert not weight.quantised
    out = filled(n, rows)
    backend.linear_float(x, weight, out)
    for i, j in np.ndindex(n, rows):
        products = np.zeros(-(-cols // 32) * 32, dtype=F32)
        products[:cols] = [F32(a * b) for a, b in zip(x[i], w[j], strict=True)]
        terms = [tree_sum(products[b : b + 32]) for b in range(0, len(products), 32)]
        assert equal(np.array(out[i, j]), np.array(blocked_sum(terms)))


def test_other_types_are_dequantised_exactly() -> None:
    rng = np.random.default_rng(2)
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType.Q5_0]
    data = rng.integers(0, 256, (3, 2, size_bytes), dtype=np.uint8)
    data[:, :, :2] = rng.standard_normal((3, 2, 1)).astype(np.float16).view(np.uint8)
    source = WeightSource("w", "Q5_0", 3, 2 * size, data.reshape(3, -1))
    x = normal(rng, 2, source.cols)
    weight = backend.load(source)
    assert not weight.quantised
    out, wanted = filled(2, 3), filled(2, 3)
    backend.linear_float(x, weight, out)
    plain = dequantize(source.data, GGMLQuantizationType.Q5_0).astype(F32)
    backend.linear_float(x, backend.load(float_source(plain)), wanted)
    assert equal(out, wanted)


@pytest.mark.parametrize("kind", [*NATIVE, "F32", "F16", "BF16"])
def test_embed(kind: str) -> None:
    rng = np.random.default_rng(9)
    if kind in NATIVE:
        source = random_source(rng, kind, 7, 1)
        table = dequantize(source.data, GGMLQuantizationType[kind]).astype(F32)
    else:
        source = float_source(normal(rng, 7, 40), kind)
        table = widened(source)
    tokens = np.array([6, 0, 6, 3], dtype=np.int32)
    out = filled(4, source.cols)
    backend.embed(tokens, backend.load(source), out)
    assert equal(out, table[tokens])


@pytest.mark.parametrize("kind", [*NATIVE, "F32", "BF16"])
def test_rows_are_independent(kind: str) -> None:
    """A row alone, in any batch, beside NaN and infinity: the same bytes."""
    rng = np.random.default_rng(4)
    if kind in NATIVE:
        source = random_source(rng, kind, 19, 2 if "_K" in kind else 9)
    else:
        source = float_source(normal(rng, 19, 275), kind)
    weight = backend.load(source)
    x = normal(rng, 9, source.cols)
    x[3, 5], x[6, 2] = np.nan, np.inf

    def run(rows: np.ndarray) -> np.ndarray:
        out = filled(len(rows), 19)
        if weight.quantised:
            backend.linear_quantised(quantised(rows), weight, out)
        else:
            backend.linear_float(rows, weight, out)
        return out

    together = run(x)
    assert not np.isfinite(together[[3, 6]]).all() and np.isfinite(together[[0, 1, 2]]).all()
    for i in range(9):
        assert equal(run(x[i : i + 1]), together[i : i + 1])
    assert equal(run(x[2:7]), together[2:7])
    assert equal(run(x[::-1].copy()), together[::-1].copy())


def test_linear_float_takes_strided_rows() -> None:
    rng = np.random.default_rng(8)
    wide = normal(rng, 3, 90)
    weight = backend.load(float_source(normal(rng, 4, 40)))
    out, wanted = filled(3, 4), filled(3, 4)
    backend.linear_float(backend.columns(wide, 20, 60), weight, out)
    backend.linear_float(wide[:, 20:60].copy(), weight, wanted)
    assert equal(out, wanted)
