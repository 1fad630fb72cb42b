"""Maxima and sums of exponentials of logits: against the definition, and all backends alike."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba_values import moods, seeds, values
from support.arrays import equal, filled

from specla.backends.numba.backend import NumbaBackend
from specla.backends.numpy.backend import NumpyBackend

REFERENCE, COMPILED = NumpyBackend(), NumbaBackend()
lengths = st.one_of(st.integers(1, 200), st.sampled_from([63, 64, 65, 2048, 4099]))


def _sums(backend: NumpyBackend, logits: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    top, total = filled(len(logits)), filled(len(logits))
    backend.soft_sums(logits, top, total)
    return top, total


@settings(max_examples=100)
@given(n=st.integers(1, 5), vocab=lengths, mood=moods, seed=seeds)
def test_backends_agree(n: int, vocab: int, mood: str, seed: int) -> None:
    logits = values(np.random.default_rng(seed), mood, n, vocab)
    for one, other in zip(_sums(COMPILED, logits), _sums(REFERENCE, logits), strict=True):
        assert equal(one, other)


@pytest.mark.parametrize("backend", [REFERENCE, COMPILED], ids=["numpy", "numba"])
def test_definition(backend: NumpyBackend) -> None:
    logits = np.random.default_rng(0).normal(0, 4, (3, 1000)).astype(np.float32)
    top, total = _sums(backend, logits)
    assert equal(top, logits.max(axis=1))
    for row, m, found in zip(logits.tolist(), top.tolist(), total.tolist(), strict=True):
        assert math.isclose(found, math.fsum(math.exp(x - m) for x in row), rel_tol=1e-6)


@pytest.mark.parametrize("backend", [REFERENCE, COMPILED], ids=["numpy", "numba"])
def test_rows_stand_alone(backend: NumpyBackend) -> None:
    logits = np.random.default_rng(1).normal(0, 4, (7, 333)).astype(np.float32)
    whole = _sums(backend, logits)
    for i in range(7):
        for one, other in zip(_sums(backend, logits[i : i + 1]), whole, strict=True):
            assert equal(one, other[i : i + 1])


@pytest.mark.parametrize("backend", [REFERENCE, COMPILED], ids=["numpy", "numba"])
def test_special_rows(backend: NumpyBackend) -> None:
    logits = np.zeros((5, 70), np.float32)
    logits[0, 69] = np.nan
    logits[1] = -np.inf
    logits[2, 3] = np.inf
    logits[3] = -np.inf
    logits[3, 66] = 2.0
    logits[4] = -0.0
    top, total = _sums(backend, logits)
    assert np.isnan(top[0]) and np.isnan(total[0])
    assert top[1] == -np.inf and np.isnan(total[1])
    assert top[2] == np.inf and np.isnan(total[2])
    assert (top[3], total[3]) == (2.0, 1.0)
    assert total[4] == 70.0 and not np.signbit(top[4])
