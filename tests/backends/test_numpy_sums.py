"""The two orders of addition against naive recursion and loops."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.arrays import equal, normal
from support.oracle import F32, blocked_sum, tree_sum

from specla.backends.numpy.sums import halving_tree, segmented_sum


@given(n=st.integers(1, 70), width=st.integers(1, 5), seed=st.integers(0, 2**32 - 1))
def test_halving_tree(n: int, width: int, seed: int) -> None:
    x = normal(np.random.default_rng(seed), n, width)
    wanted = tree_sum(x)
    kept = x.copy()
    assert equal(halving_tree(x, axis=0), wanted)
    assert equal(halving_tree(np.ascontiguousarray(x.T)), wanted)
    assert equal(halving_tree(x.T.copy()[None], axis=2)[0], wanted)
    assert equal(x, kept)


def test_halving_tree_by_hand() -> None:
    big, one = F32(2**24), F32(1)
    # (x0 + x2) + (x1 + x3): 1 is lost against 2^24, two of them together are not
    assert halving_tree(np.array([big, one, 0, one], dtype=F32)) == big + 2
    assert halving_tree(np.array([big, one, one, 0], dtype=F32)) == big
    # three entries are padded with +0.0, which also turns -0.0 into +0.0 where it is added
    assert halving_tree(np.array([one, big, one], dtype=F32)) == big + 2
    minus = np.array([-0.0], dtype=F32)
    assert np.signbit(halving_tree(minus))
    assert np.signbit(halving_tree(np.repeat(minus, 4)))
    assert not np.signbit(halving_tree(np.repeat(minus, 3)))


def test_halving_tree_does_not_take_another_order() -> None:
    rng = np.random.default_rng(3)
    x = normal(rng, 64, 200)
    found = halving_tree(x, axis=0)
    for other in (x.sum(axis=0), np.add.accumulate(x)[-1], np.add.accumulate(x[::-1])[-1]):
        assert not equal(found, other)


@given(n=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_segmented_sum(n: int, seed: int) -> None:
    terms = normal(np.random.default_rng(seed), n, 3, 2)
    found = segmented_sum(terms)
    for i in np.ndindex(3, 2):
        assert equal(np.array(found[i]), np.array(blocked_sum(list(terms[(slice(None), *i)]))))


def test_segmented_sum_by_hand() -> None:
    terms = np.ones(24, dtype=F32)
    terms[0] = 2**24
    # eight runs of three. The first swallows its two ones one by one; the others are 3 each:
    # (2^24 + 3 -> 2^24 + 4) + (3 + 3), then + ((3 + 3) + (3 + 3))
    assert segmented_sum(terms) == 2**24 + 4 + 6 + 12
    # nine terms make runs of two, so that the last three runs are empty
    terms = np.array([2**24, 1, 1, 1, 0, 0, 0, 0, 1], dtype=F32)
    # run sums 2^24, 2, 0, 0, 1, 0, 0, 0: ((2^24 + 1) + 0) + ((2 + 0) + 0)
    assert segmented_sum(terms) == 2**24 + 2


def test_minus_zero_terms_give_plus_zero() -> None:
    terms = np.full((5, 2), -0.0, dtype=F32)
    assert not np.signbit(segmented_sum(terms)).any()
