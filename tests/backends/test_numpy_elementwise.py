"""Norms, rotary embedding, gates, choices and array operations against naive loops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import equal, filled, normal
from support.oracle import F32, tree_sum

from specla.backends.base import RotaryTable
from specla.backends.numpy.backend import NumpyBackend
from specla.core import elementary
from specla.models.qwen35.rotary import rotary_table

backend = NumpyBackend()
EPS = 1e-6
shapes = {"n": st.integers(1, 4), "d": st.integers(1, 40), "seed": st.integers(0, 2**32 - 1)}


def inverse_rms(row: np.ndarray) -> np.float32:
    mean = F32(tree_sum(row * row) / F32(len(row)))
    return elementary.rsqrt(F32(mean + F32(EPS)))


@given(**shapes)
def test_rms_norm(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, weight, out = normal(rng, n, d), normal(rng, d), filled(n, d)
    backend.rms_norm(x, weight, EPS, out)
    for i in range(n):
        assert equal(out[i], (x[i] * inverse_rms(x[i])) * weight)
        alone = filled(1, d)
        backend.rms_norm(x[i : i + 1], weight, EPS, alone)
        assert equal(alone[0], out[i])


@given(**shapes, heads=st.integers(1, 3))
def test_norms_per_head(n: int, d: int, seed: int, heads: int) -> None:
    rng = np.random.default_rng(seed)
    x, gate, weight = normal(rng, n, heads, d), normal(rng, n, heads, d), normal(rng, d)
    plain, gated, unit = (filled(n, heads, d) for _ in range(3))
    backend.rms_norm(x, weight, EPS, plain)
    backend.gated_rms_norm(x, gate, weight, EPS, gated)
    backend.l2_norm(x, EPS, d**-0.5, unit)
    for i in np.ndindex(n, heads):
        normed = (x[i] * inverse_rms(x[i])) * weight
        assert equal(plain[i], normed)
        assert equal(gated[i], normed * elementary.silu(gate[i]))
        inverse = elementary.rsqrt(F32(tree_sum(x[i] * x[i]) + F32(EPS)))
        assert equal(unit[i], (x[i] * inverse) * F32(d**-0.5))


def test_norm_by_hand() -> None:
    x = np.array([[3, 4, 0, 0], [0, 0, 0, 0]], dtype=F32)
    out = filled(2, 4)
    backend.rms_norm(x, np.array([1, 2, 1, 1], dtype=F32), 0.0, out)
    assert out[0].tolist() == pytest.approx([1.2, 3.2, 0, 0], rel=1e-6)
    assert np.isnan(out[1]).all()  # 0 * inf: eps is what prevents it
    backend.rms_norm(x, np.ones(4, dtype=F32), EPS, out)
    assert out[1].tolist() == [0] * 4


def test_norms_take_views() -> None:
    rng = np.random.default_rng(3)
    wide = normal(rng, 5, 30)
    view = backend.heads(backend.columns(wide, 6, 18), 3)
    out, wanted = filled(5, 3, 4), filled(5, 3, 4)
    backend.l2_norm(view, EPS, 1.0, out)
    backend.l2_norm(wide[:, 6:18].reshape(5, 3, 4).copy(), EPS, 1.0, wanted)
    assert equal(out, wanted)
    assert not np.shares_memory(out, wide)


def table(rotary: int = 4, positions: int = 300) -> RotaryTable:
    return RotaryTable(*rotary_table(positions, rotary, 10000.0))


@given(
    position=st.lists(st.integers(0, 299), min_size=1, max_size=4),
    heads=st.integers(1, 3),
    rotary=st.sampled_from([2, 4, 6]),
    seed=st.integers(0, 99),
)
def test_rotary(position: list[int], heads: int, rotary: int, seed: int) -> None:
    x = normal(np.random.default_rng(seed), len(position), heads, 6)
    kept, angles, half = x.copy(), table(rotary), rotary // 2
    backend.rotary(x, np.array(position, dtype=np.int32), angles)
    for n, h, i in np.ndindex(len(position), heads, half):
        cos, sin = angles.cos[position[n], i], angles.sin[position[n], i]
        a, b = kept[n, h, i], kept[n, h, i + half]
        assert x[n, h, i] == F32(F32(a * cos) - F32(b * sin))
        assert x[n, h, i + half] == F32(F32(b * cos) + F32(a * sin))
    assert equal(x[..., rotary:], kept[..., rotary:])


def test_rotary_table() -> None:
    cos, sin = rotary_table(50, 6, 10000.0)
    assert cos.shape == sin.shape == (50, 3) and cos.dtype == sin.dtype == np.float32
    assert (cos[0] == 1).all() and (sin[0] == 0).all()
    for p, i in np.ndindex(50, 3):
        angle = p / 10000.0 ** (2 * i / 6)
        assert cos[p, i] == F32(np.cos(angle)) and sin[p, i] == F32(np.sin(angle))


@given(**shapes)
def test_activations(n: int, d: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = normal(rng, n, d), normal(rng, n, d)
    for kernel, wanted in (
        (backend.swiglu, elementary.silu(x) * y),
        (backend.sigmoid_gate, x * elementary.sigmoid(y)),
        (backend.add, x + y),
    ):
        out = filled(n, d)
        kernel(x, y, out)
        assert equal(out, wanted)


def test_add_in_place() -> None:
    x, y = np.array([[1, 2]], dtype=F32), np.array([[10, 20]], dtype=F32)
    backend.add(x, y, x)
    assert x.tolist() == [[11, 22]] and y.tolist() == [[10, 20]]


# -- choices -------------------------------------------------------------------------------------

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("logits", "best"),
    [
        ([1, 3, 2], 1),
        ([3, 3, 3], 0),
        ([1, 3, 3], 1),
        ([-0.0, 0.0], 0),
        ([NAN, 1, NAN, 1], 1),
        ([NAN, -5, -4], 2),
        ([1, INF, INF], 1),
        ([-INF, -3e38], 1),
        ([NAN, -INF, -1], 2),
        # no token is possible
        ([NAN, NAN], -1),
        ([-INF, -INF], -1),
        ([NAN, -INF], -1),
    ],
)
def test_argmax(logits: list[float], best: int) -> None:
    out = filled(2, dtype="int32")
    backend.argmax(np.array([logits, [0] * len(logits)], dtype=F32), out)
    assert out.tolist() == [best, 0]


@given(
    st.lists(
        st.lists(
            st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.5, INF, -INF, NAN]), min_size=6, max_size=6
        ),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 6),
)
def test_top_k(rows: list[list[float]], k: int) -> None:
    logits = np.array(rows, dtype=F32)
    values, ids = filled(len(rows), k), filled(len(rows), k, dtype="int32")
    best = filled(len(rows), dtype="int32")
    kept = logits.copy()
    backend.top_k(logits, k, values, ids)
    backend.argmax(logits, best)
    for n, row in enumerate(rows):
        clean = [-INF if np.isnan(v) else v for v in row]
        order = sorted(range(6), key=lambda i, c=clean: (-c[i], i))
        assert ids[n].tolist() == order[:k]
        assert equal(values[n], np.array([clean[i] for i in order[:k]], dtype=F32))
        assert best[n] == (order[0] if clean[order[0]] > -INF else -1)
    assert equal(logits, kept)


# -- arrays ----------------------------------------------------------------------------------------


def test_arrays() -> None:
    assert backend.empty((2, 3), "float16").dtype == np.float16
    assert backend.zeros((2,), "int8").tolist() == [0, 0]
    host = np.arange(3, dtype=np.int32)
    device = backend.upload(host)
    host[0] = 9
    assert device.tolist() == [0, 1, 2], "an upload is a copy"
    buffer = backend.zeros((5,), "int32")
    part = backend.upload(host, into=buffer)
    assert part.tolist() == [9, 1, 2] and buffer.tolist() == [9, 1, 2, 0, 0]
    got = backend.download(buffer)
    got[0] = 1
    assert buffer[0] == 9, "a download is a copy"


def test_views_write_through() -> None:
    x = backend.zeros((4, 6))
    backend.rows(x, 2)[...] = 1
    backend.row(x, 3)[...] = 2
    backend.heads(backend.columns(x, 2, 6), 2)[2, 1] = 3
    assert x[:, 0].tolist() == [1, 1, 0, 2]
    assert x[2].tolist() == [0, 0, 0, 0, 3, 3]
    assert backend.row(x, 3).shape == (1, 6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "int8"])
def test_clear_poison_copy(dtype: str) -> None:
    x = backend.zeros((3, 2), dtype)
    backend.poison(x, 1)
    assert not x[[0, 2]].any()
    bad = np.isnan(x[1]) if x.dtype.kind == "f" else x[1] == np.iinfo(dtype).min
    assert bad.all()
    backend.copy(x, slice(0, 1), x, slice(1, 2))
    assert x[0].tobytes() == x[1].tobytes()
    backend.clear(x, 1)
    assert not x[1].any() and x[0].tobytes() != x[1].tobytes()
    backend.clear(x)
    assert not x.any()
