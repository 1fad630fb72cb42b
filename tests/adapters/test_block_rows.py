"""The arithmetic below the scored rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fake_drafter import random_drafter

from specla.adapters import block_rows
from specla.adapters.block_rows import MarkovRows, best_columns, log_sum_exp
from specla.core.trees import Level


def best_by_hand(logits: np.ndarray, k: int) -> list[list[tuple[int, float]]]:
    rows = [sorted(enumerate(row), key=lambda pair: (-pair[1], pair[0])) for row in logits.tolist()]
    return [row[:k] for row in rows]


@pytest.mark.parametrize("sort_up_to", [0, 10**9])
@pytest.mark.parametrize(("count", "width", "k"), [(1, 1, 1), (3, 7, 4), (5, 4, 9), (22, 64, 4)])
def test_the_best_of_each_row_ties_by_place(
    monkeypatch: pytest.MonkeyPatch, sort_up_to: int, count: int, width: int, k: int
) -> None:
    """Both ways, from values of which many are equal."""
    monkeypatch.setattr(block_rows, "_SORTED", sort_up_to)
    logits = np.random.default_rng(width).integers(-3, 4, (count, width)).astype(np.float32)
    before = logits.copy()
    places, values = best_columns(logits, k)
    found = [
        list(zip(at, best, strict=True))
        for at, best in zip(places.tolist(), values.tolist(), strict=True)
    ]
    assert found == best_by_hand(logits, k)
    assert np.array_equal(before, logits)


@pytest.mark.parametrize("sort_up_to", [0, 10**9])
def test_where_nothing_is_left_the_value_says_so(
    monkeypatch: pytest.MonkeyPatch, sort_up_to: int
) -> None:
    monkeypatch.setattr(block_rows, "_SORTED", sort_up_to)
    _, values = best_columns(np.array([[-math.inf, 2.0, -math.inf]]), 3)
    assert values.tolist() == [[2.0, -math.inf, -math.inf]]


def test_sums_of_large_logits() -> None:
    logits = np.array([[1000.0, 1000.0], [-1000.0, -math.inf]], np.float32)
    expected = [1000.0 + math.log(2.0), -1000.0]
    assert np.allclose(log_sum_exp(logits), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("shortlist", [1, 3, 5])
def test_all_children_and_the_rest_make_one(shortlist: int) -> None:
    """Probabilities of a shortlist, and the uncorrected mass of the others, add up to 1."""
    drafter = random_drafter(shortlist)
    assert drafter.markov is not None
    logits, table = drafter.logits[0].astype(np.float64), drafter.markov.table
    draft = drafter._block(2, (), 3, shortlist)
    rows = MarkovRows(draft, drafter.markov, 6, shortlist, 6)
    before = np.array([0, 4], np.int32)
    ids, log_probs = rows(Level(0, before, np.empty((6, 2)), np.empty((6, 0))))
    for row, token in enumerate(before):
        outside = np.setdiff1d(np.arange(6), ids[row])
        corrected = np.exp(logits + table[token])[ids[row]]
        total = corrected.sum() + np.exp(logits)[outside].sum()
        assert len(outside) == 6 - shortlist
        assert np.allclose(np.exp(log_probs[row]), corrected / total, rtol=1e-5)
