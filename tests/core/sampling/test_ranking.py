"""Ranking: exact ties, NaN, signed zeros and infinities, against Python's sorted()."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specla.core.sampling.ranking import best, rank

# few distinct values, so that ties are the rule
TIED = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 2.0**-149, -(2.0**-149), math.inf, -math.inf, math.nan, 2.5]
)
ROWS = st.lists(TIED | st.floats(width=32), min_size=1, max_size=60)


def as_ranked(value: float) -> float:
    return -math.inf if math.isnan(value) else value


def slow_order(row: list[float], ids: list[int]) -> list[int]:
    """Positions, best first."""
    return sorted(range(len(row)), key=lambda i: (-as_ranked(row[i]), ids[i]))


@given(row=ROWS, k=st.integers(0, 70))
def test_rank_equals_sorted(row: list[float], k: int) -> None:
    values, ids = rank(np.array(row, np.float32), k)
    order = slow_order(row, list(range(len(row))))[: k or None]
    assert ids.tolist() == order
    assert values.dtype == np.float32
    assert values.tolist() == [as_ranked(row[i]) for i in order]


@given(row=ROWS, k=st.integers(0, 70), data=st.data())
def test_rank_with_given_ids_ignores_the_order_of_the_list(
    row: list[float], k: int, data: st.DataObject
) -> None:
    ids = data.draw(
        st.lists(st.integers(0, 2**31), min_size=len(row), max_size=len(row), unique=True)
    )
    got_values, got_ids = rank(np.array(row, np.float32), k, np.array(ids, np.int64))
    order = slow_order(row, ids)[: k or None]
    assert got_ids.tolist() == [ids[i] for i in order]
    assert got_values.tolist() == [as_ranked(row[i]) for i in order]


@given(row=ROWS)
def test_best_is_the_first_of_the_ranking(row: list[float]) -> None:
    assert best(np.array(row, np.float32)) == slow_order(row, list(range(len(row))))[0]


def test_hand_worked() -> None:
    row = np.array([1.0, math.nan, 3.0, -0.0, 3.0, 0.0, -math.inf], np.float32)
    values, ids = rank(row)
    # the two infinities-to-be (NaN and -inf) come last, by id; the zeros tie
    assert ids.tolist() == [2, 4, 0, 3, 5, 1, 6]
    assert values.tolist() == [3.0, 3.0, 1.0, 0.0, 0.0, -math.inf, -math.inf]
    assert rank(row, 1)[1].tolist() == [2]
    assert rank(row, 4)[1].tolist() == [2, 4, 0, 3]
    assert math.isnan(row[1]) and math.copysign(1, row[3]) == -1, "the row must not be written"


def test_strided_and_read_only_rows() -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(4, 3)
    column = matrix[::-1, 1]
    column.flags.writeable = False
    assert rank(column)[1].tolist() == [0, 1, 2, 3]
    assert best(column) == 0
