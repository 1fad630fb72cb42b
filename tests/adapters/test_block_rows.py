"""The arithmetic below the scored rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fake_drafter import FakeDrafter, FakeMarkov, random_drafter

from specla.adapters import block_rows
from specla.adapters.block_rows import BestOfRows, MarkovRows, best_places, log_sum_exp
from specla.core.trees import Node
from specla.errors import ProposalError


@pytest.mark.parametrize("sort_up_to", [0, 10**9])
@pytest.mark.parametrize(("width", "k"), [(1, 1), (7, 4), (4, 9), (64, 4)])
def test_the_best_of_a_row_ties_by_place(
    monkeypatch: pytest.MonkeyPatch, sort_up_to: int, width: int, k: int
) -> None:
    """Both ways, from values of which many are equal."""
    monkeypatch.setattr(block_rows, "_SORTED", sort_up_to)
    for seed in range(8):
        values = np.random.default_rng(seed).integers(-3, 4, width).astype(np.float32)
        before = values.copy()
        ranked = sorted(range(width), key=lambda i: (-before[i], i))
        assert best_places(values, k).tolist() == ranked[:k]
        assert np.array_equal(before, values)


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
    for token in (0, 4):
        ids, log_probs = rows(Node(0, token))
        outside = np.setdiff1d(np.arange(6), ids)
        corrected = np.exp(logits + table[token])[ids]
        total = corrected.sum() + np.exp(logits)[outside].sum()
        assert len(outside) == 6 - shortlist
        assert np.allclose(np.exp(log_probs), corrected / total, rtol=1e-5)


def test_a_damaged_draft_says_so() -> None:
    drafter = random_drafter(1)
    draft = drafter._block(2, (), 3, 4)
    draft.values[0, 1] = np.nan
    with pytest.raises(ProposalError, match="NaN"):
        BestOfRows(draft, 4, 6).children(0, 2)


def test_a_shortlist_without_a_chance_has_no_children() -> None:
    """All that is left is the mass of the others."""
    table = np.full((3, 3), -np.inf, np.float32)
    drafter = FakeDrafter(np.zeros((1, 3), np.float32), FakeMarkov(table))
    draft = drafter._block(2, (), 1, 2)
    assert MarkovRows(draft, FakeMarkov(table), 2, 2, 9)(Node(0, 1)) == ([0, 1], [-math.inf] * 2)
    assert MarkovRows(draft, FakeMarkov(table), 2, 2, 2)(Node(0, 1)) == ([], [])
