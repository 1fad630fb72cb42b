"""Norms, gates, quantisation and choices of the compiled backend: the reference's bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba_values import moods, seeds, strided, values
from support.arrays import equal, filled, quantised_rows

from specla.backends.base import RotaryTable
from specla.backends.numba import elementary as compiled
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.jit import Kernel
from specla.backends.numba.lanes import over_rows
from specla.backends.numba.vector_code import address
from specla.backends.numpy.backend import NumpyBackend
from specla.core import elementary

REFERENCE, COMPILED = NumpyBackend(), NumbaBackend()
examples = settings(max_examples=60)
sizes = st.one_of(st.integers(1, 40), st.sampled_from([64, 96, 127, 128, 256, 1024]))


def _apply(name: str) -> object:
    function = getattr(compiled, name)

    def run(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(x.shape[0]):
            out[i] = function(x[i])

    return Kernel(run, "void(float32[::1], float32[::1])", cached=False)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "softplus", "log", "rsqrt"])
def test_elementary_functions(name: str) -> None:
    rng = np.random.default_rng(0)
    words = rng.integers(0, 2**32, 1 << 20, dtype=np.uint32)  # any float32 at all
    near = rng.uniform(-110, 95, 1 << 19).astype(np.float32)
    x = np.concatenate([words.view(np.float32), near])
    out = filled(len(x))
    _apply(name)(x, out)
    assert equal(out, getattr(elementary, name)(x))


norm_sizes = st.one_of(sizes, st.sampled_from([65, 129, 255, 512, 1000, 2048, 2560, 4096]))


def _over_rows(name: str) -> Kernel:
    operation = over_rows(compiled.functions[name])

    def run(x: np.ndarray, out: np.ndarray) -> None:
        operation(x.shape[0], (address(out),), (address(x),))

    return Kernel(run, "void(float32[::1], float32[::1])", cached=False)


@pytest.mark.parametrize("name", ["exp", "sigmoid", "silu", "softplus", "log", "rsqrt"])
def test_elementary_functions_of_rows(name: str) -> None:
    """Whole vectors: every sign, exponent and a choice of mantissas; lengths with any remainder."""
    top = np.arange(512, dtype=np.uint32) << 23
    mantissa = np.random.default_rng(1).integers(0, 1 << 23, 500, dtype=np.uint32)
    mantissa[:4] = 0, 1, (1 << 23) - 1, 1 << 22
    x = (top[:, None] | mantissa).reshape(-1).view(np.float32)
    run, wanted = _over_rows(name), getattr(elementary, name)(x)
    out = filled(len(x))
    run(x, out)
    assert equal(out, wanted)
    for n in range(50):
        out, start = filled(n + 9), 997 * n
        run(x[start : start + n], out[:n])
        assert equal(out[:n], wanted[start : start + n]) and np.isnan(out[n:]).all()
    same = x.copy()
    run(same, same)
    assert equal(same, wanted)


@examples
@given(n=st.integers(1, 5), h=st.integers(1, 4), d=norm_sizes, mood=moods, seed=seeds)
def test_norms(n: int, h: int, d: int, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, gate = (strided(rng, values(rng, mood, n, h, d)) for _ in range(2))
    weight = values(rng, mood, d)
    found, wanted = ([filled(n, h, d) for _ in range(4)] for _ in range(2))
    for backend, out in ((COMPILED, found), (REFERENCE, wanted)):
        backend.rms_norm(x, weight, 1e-6, out[0])
        backend.rms_norm(x[:, 0], weight, 1e-6, out[1][:, 0])
        backend.gated_rms_norm(x, gate, weight, 1e-5, out[2])
        backend.l2_norm(x, 1e-6, d**-0.5, out[3])
    for one, other in zip(found, wanted, strict=True):
        assert equal(one, other)


@examples
@given(n=st.integers(1, 5), h=st.integers(1, 4), d=sizes, mood=moods, seed=seeds)
def test_gates(n: int, h: int, d: int, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = (strided(rng, values(rng, mood, n, h, d)) for _ in range(2))
    a, bias = values(rng, mood, d), values(rng, mood, d)
    found, wanted = ([filled(n, h, d) for _ in range(3)] for _ in range(2))
    gates, wanted_gates = ([filled(n, d) for _ in range(2)] for _ in range(2))
    for backend, out, two in (
        (COMPILED, found, gates),
        (REFERENCE, wanted, wanted_gates),
    ):
        backend.swiglu(x[:, 0], y[:, 0], out[0][:, 0])
        backend.sigmoid_gate(x, y, out[1])
        out[2][...] = x
        backend.add(out[2][:, 0], y[:, 0], out[2][:, 0])
        backend.gdn_gates(x[:, 0], y[:, 0], a, bias, *two)
    for one, other in zip(found + gates, wanted + wanted_gates, strict=True):
        assert equal(one, other)


@examples
@given(n=st.integers(1, 6), h=st.integers(1, 4), half=st.integers(1, 32), mood=moods, seed=seeds)
def test_rotary(n: int, h: int, half: int, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = values(rng, mood, n, h, 2 * half + int(rng.integers(0, 9)))
    angle = rng.uniform(0, 7, (20, half))
    table = RotaryTable(np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32))
    position = rng.integers(0, 20, n, dtype=np.int32)
    found, wanted = x.copy(), x.copy()
    COMPILED.rotary(found, position, table)
    REFERENCE.rotary(wanted, position, table)
    assert equal(found, wanted)


@examples
@given(n=st.integers(1, 4), k=st.integers(1, 200), mood=moods, seed=seeds)
def test_quantise(n: int, k: int, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = strided(rng, values(rng, mood, n, k))
    results = []
    for backend in (COMPILED, REFERENCE):
        rows = quantised_rows(backend, x)
        backend.quantise(x, rows)
        results.append(rows)
    assert equal(results[0].values, results[1].values)
    assert equal(results[0].scale, results[1].scale)
    assert equal(results[0].sums, results[1].sums)


def test_quantise_second_form() -> None:
    """int16 in the order in which pairs of them are multiplied; not where bytes are."""
    x = values(np.random.default_rng(1), "plain", 3, 70)
    backend = NumbaBackend("portable")
    backend.quantise(x, rows := quantised_rows(backend, x))
    order = np.arange(96).reshape(-1, 4)[:, [0, 2, 1, 3]].ravel()
    assert equal(rows.pairs, rows.values[:, order].astype(np.int16))
    backend.level = "vnni"
    backend.quantise(x, without := quantised_rows(backend, x))
    assert without.pairs is None and equal(without.values, rows.values)


def test_quantise_coarse_scales() -> None:
    """Subnormal scales: quotients beyond 127, scales that round to zero."""
    x = (np.arange(1, 4001, dtype=np.uint32)[:, None] // np.arange(1, 33, dtype=np.uint32)).astype(
        np.uint32
    )
    x = np.ascontiguousarray(x).view(np.float32)
    results = []
    for backend in (COMPILED, REFERENCE):
        rows = quantised_rows(backend, x)
        backend.quantise(x, rows)
        results.append(rows)
    assert equal(results[0].values, results[1].values)
    assert equal(results[0].scale, results[1].scale)
    assert equal(results[0].sums, results[1].sums)


@examples
@given(n=st.integers(1, 4), vocab=st.integers(1, 700), data=st.data(), seed=seeds)
def test_choices(n: int, vocab: int, data: st.DataObject, seed: int) -> None:
    """Few distinct values, so that ties are common."""
    rng = np.random.default_rng(seed)
    some = np.array([-np.inf, np.nan, 0.0, -0.0, 1.0, 2.0, np.inf, -3e38], dtype=np.float32)
    logits = rng.choice(some[: int(rng.integers(1, 9))], (n, vocab))
    if rng.random() < 0.3:
        logits = rng.standard_normal((n, vocab)).astype(np.float32)
    k = data.draw(st.integers(1, vocab))
    results = []
    for backend in (COMPILED, REFERENCE):
        best, ids = filled(n, dtype="int32"), filled(n, k, dtype="int32")
        top = filled(n, k)
        backend.argmax(logits, best)
        backend.top_k(logits, k, top, ids)
        results.append((best, top, ids))
    for one, other in zip(*results, strict=True):
        assert equal(one, other)


@examples
@given(vocab=st.integers(200, 5000), k=st.integers(1, 70), seed=seeds)
def test_top_of_many(vocab: int, k: int, seed: int) -> None:
    """More entries than are looked at one by one; the best may lie anywhere, and tie."""
    rng = np.random.default_rng(seed)
    logits = np.round(rng.standard_normal((2, vocab)) * rng.choice([1, 30])).astype(np.float32)
    logits[:, rng.integers(0, vocab, 5)] = rng.choice([np.nan, -np.inf, np.inf, 99], 5)
    if rng.random() < 0.3:
        logits.sort(axis=1)  # every entry is a new best
    results = []
    for backend in (COMPILED, REFERENCE):
        best = filled(2, dtype="int32")
        top, ids = filled(2, k), filled(2, k, dtype="int32")
        backend.argmax(logits, best)
        backend.top_k(logits, k, top, ids)
        results.append((best, top, ids))
    for one, other in zip(*results, strict=True):
        assert equal(one, other)
