"""Softmax weights, top-p, min-p and the draw: hand-worked, and against plain Python loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.core.elementary import exp
from specla.core.sampling import filters

POSITIVE = st.lists(st.floats(0.0, 1.0, width=32), min_size=1, max_size=50)


def descending(values: list[float]) -> np.ndarray:
    return np.array([1.0, *sorted(values, reverse=True)], np.float64)


def test_weights_hand_worked() -> None:
    ranked = np.array([2.0, 1.0, 0.0, -math.inf], np.float32)
    got = filters.weights(ranked, 0.5)
    assert got.dtype == np.float64
    assert got[0] == 1.0 and got[3] == 0.0
    assert got[1:3] == pytest.approx([math.exp(-2), math.exp(-4)], rel=1e-6)


@given(
    row=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
    temperature=st.floats(0.05, 20),
)
def test_weights_are_softmax(row: list[float], temperature: float) -> None:
    ranked = np.array(sorted(row, reverse=True), np.float32)
    got = filters.weights(ranked, temperature)
    top = max(row)
    # relative error of exp(x) is about the absolute error of x, which is |x| * 2^-23
    for value, weight in zip(ranked.tolist(), got.tolist(), strict=True):
        x = (value - top) / temperature
        assert weight == pytest.approx(math.exp(x), rel=1e-6 + abs(x) * 3e-7, abs=1e-44)


@given(
    row=st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=40),
    temperature=st.floats(0.05, 20),
)
def test_weights_have_the_bits_of_one_subtraction_one_division_and_exp(
    row: list[float], temperature: float
) -> None:
    ranked = np.array(sorted(row, reverse=True), np.float32)
    wanted = [exp(np.array([(x - ranked[0]) / np.float32(temperature)]))[0] for x in ranked]
    assert filters.weights(ranked, temperature).tobytes() == np.array(wanted, np.float64).tobytes()


@pytest.mark.parametrize("temperature", [1e-6, 1.0, 1e6])
def test_weights_of_extreme_logits_are_finite(temperature: float) -> None:
    big = float(np.finfo(np.float32).max)
    got = filters.weights(np.array([big, big, 0.0, -big, -math.inf], np.float32), temperature)
    assert got.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    got = filters.weights(np.array([math.inf, math.inf, big, 0.0], np.float32), temperature)
    assert got.tolist() == [1.0, 1.0, 0.0, 0.0]


@given(values=POSITIVE)
def test_running_sum_is_sequential(values: list[float]) -> None:
    # long enough for NumPy's pairwise blocks, if it used them
    weight = np.array(values * 40, np.float64) / 3
    total, wanted = 0.0, []
    for value in weight.tolist():
        total += value
        wanted.append(total)
    assert filters.running_sum(weight).tolist() == wanted


@pytest.mark.parametrize(
    ("top_p", "count"),
    [(0.0, 1), (0.49, 1), (0.5, 1), (0.51, 2), (0.75, 2), (0.76, 3), (0.875, 3), (0.9, 4), (1, 5)],
)
def test_top_p_hand_worked(top_p: float, count: int) -> None:
    # probabilities 1/2, 1/4, 1/8, 1/16, 1/16: every sum is exact
    weight = np.array([1.0, 0.5, 0.25, 0.125, 0.125])
    assert filters.top_p_count(weight, top_p) == count


@given(values=POSITIVE, top_p=st.floats(0.0, 1.0))
def test_top_p_is_the_shortest_sufficient_prefix(values: list[float], top_p: float) -> None:
    weight = descending(values)
    count = filters.top_p_count(weight, top_p)
    total = math.fsum(weight)
    slack = 1e-12 * total
    assert 1 <= count <= weight.size
    assert math.fsum(weight[:count]) >= top_p * total - slack
    if count > 1 and top_p < 1.0:
        assert math.fsum(weight[: count - 1]) < top_p * total + slack


@given(values=POSITIVE, min_p=st.floats(0.0, 1.0))
def test_min_p(values: list[float], min_p: float) -> None:
    weight = descending(values)
    kept = filters.min_p_kept(weight, min_p)
    assert kept.tolist() == [value >= min_p for value in weight.tolist()]
    assert kept[0]


def test_draw_hand_worked() -> None:
    weight = np.array([1.0, 0.5, 0.0, 0.5, 0.0])
    cases = {0.0: 0, 0.49: 0, 0.5: 1, 0.74: 1, 0.75: 3, 1 - 2.0**-53: 3}
    for number, index in cases.items():
        assert filters.draw(weight, number) == index, number


@given(values=POSITIVE, number=st.integers(0, 2**53 - 1) | st.integers(2**53 - 8, 2**53 - 1))
def test_draw_hits_a_possible_token_by_inverse_cdf(values: list[float], number: int) -> None:
    weight = descending(values)
    u = number * 2.0**-53
    sums = filters.running_sum(weight).tolist()
    wanted = next(i for i, total in enumerate(sums) if total > u * sums[-1])
    assert filters.draw(weight, u) == wanted
    assert weight[wanted] > 0.0
