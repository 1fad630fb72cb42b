"""The parts of the adaptive adapter: the cost curve, chances, plans and the gate."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.adapters.adaptive.cost_curve import EXPIRY, OUTLIER, SURE, WINDOW, CostCurve
from specla.adapters.adaptive.gate import Gate
from specla.adapters.adaptive.plan import Plan, Rates, best_plan
from specla.adapters.adaptive.survival import EDGES, Survival

samples = st.lists(st.tuples(st.integers(0, 30), st.floats(1e-6, 10.0)), min_size=1, max_size=60)


# -- cost curve ------------------------------------------------------------------------------------


@given(samples, st.integers(0, 1), st.integers(1, 80))
def test_the_curve_is_monotone_and_within_what_was_measured(
    measured: list[tuple[int, float]], base: int, most: int
) -> None:
    curve = CostCurve(base, 0.15)
    for rows, seconds in measured:
        curve.add(rows, seconds)
    table = curve.table(most)
    assert len(table) > most - base
    assert all(0 < a <= b * (1 + 1e-9) for a, b in pairwise(table))
    values = [s for rows, s in measured if rows >= base]
    if values:
        last = max(rows for rows, _ in measured)
        assert table[min(last, most) - base] <= max(values) * (1 + 1e-9)


@given(st.lists(st.floats(0.001, 1.0), min_size=2, max_size=12))
def test_a_monotone_curve_is_found_exactly(steps: list[float]) -> None:
    curve, wanted, total = CostCurve(1, 0.15), [], 0.5
    for i, step in enumerate(steps):
        total += step
        wanted.append(total)
        for _ in range(3):
            curve.add(i + 1, total)
    assert curve.table(len(steps))[: len(steps)] == pytest.approx(wanted)


def test_before_anything_is_known() -> None:
    curve = CostCurve(1, 0.5)
    assert curve.empty
    assert curve.table(3)[:3] == pytest.approx([1.0, 1.5, 2.0])
    for rows, seconds in ((0, 1.0), (1, 0.0), (1, -1.0), (1, math.inf), (1, math.nan)):
        curve.add(rows, seconds)
    assert curve.empty
    curve.add(3, 4.0)
    assert curve.table(5)[:5] == pytest.approx([2.0, 3.0, 4.0, 5.0, 6.0])


def test_between_and_beyond_what_was_measured_it_is_linear() -> None:
    curve = CostCurve(1, 0.15)
    for _ in range(SURE):
        curve.add(1, 1.0)
        curve.add(5, 3.0)
    assert curve.table(9)[:9] == pytest.approx([1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0])


def test_a_single_slow_step_is_forgiven() -> None:
    curve = CostCurve(1, 0.15)
    curve.add(1, 50.0)  # the first one
    curve.add(1, 1.0)
    assert curve.table(1)[0] == 1.0
    for i in range(20):
        curve.add(1, 1.0 if i % 5 else 30.0)
    assert curve.table(1)[0] == 1.0
    # what was seen once is not believed to cost more than a larger one, or far more than usual
    curve.add(4, 90.0)
    curve.add(5, 2.0)
    assert curve.table(5)[3:5] == pytest.approx([2.0, 2.0])
    curve.add(6, 90.0)
    assert curve.table(6)[5] == pytest.approx(OUTLIER * (1 + 5 * 0.15))
    # seen often it is so
    for _ in range(SURE - 1):
        curve.add(6, 90.0)
    assert curve.table(6)[5] == pytest.approx(90.0)
    # and one that often seems dearer than the next is averaged with it
    for _ in range(SURE):
        curve.add(7, 40.0)
    assert curve.table(7)[5:7] == pytest.approx([65.0, 65.0])


def test_it_follows_a_machine_that_got_slower_and_forgets_what_is_old() -> None:
    curve = CostCurve(1, 0.15)
    curve.add(7, 3.0)
    for _ in range(WINDOW):
        curve.add(1, 1.0)
    assert curve.age(7) == WINDOW
    for _ in range(WINDOW):
        curve.add(1, 2.0)
    assert curve.table(1)[0] == 2.0
    for _ in range(EXPIRY):
        curve.add(1, 2.0)
    assert curve.age(7) is None
    assert curve.measured() == {1: 2.0}


# -- chances ---------------------------------------------------------------------------------------

trees = st.lists(st.tuples(st.integers(-1, 20), st.floats(-4.0, 0.0)), max_size=20).map(
    lambda drawn: (
        [min(parent, i - 1) for i, (parent, _) in enumerate(drawn)],
        [log_prob for _, log_prob in drawn],
    )
)


@given(st.lists(st.tuples(trees, st.booleans(), st.integers(0, 2**20)), max_size=8))
def test_no_chance_exceeds_the_parents(
    rounds: list[tuple[tuple[list[int], list[float]], bool, int]],
) -> None:
    survival = Survival()
    for (parents, log_probs), stated, accepted in rounds:
        scored = survival.score(parents, log_probs if stated else None)
        for i, parent in enumerate(parents):
            assert 0 <= scored.chances[i] <= (scored.chances[parent] if parent >= 0 else 1)
        right = [i for i in range(len(parents)) if accepted >> i & 1]
        survival.learn(scored, range(len(parents)), right)
        survival.idle()


def test_at_first_the_draft_is_believed() -> None:
    scored = Survival().score([-1, 0, 0, -1], [math.log(p) for p in (0.5, 0.4, 0.6, 0.1)])
    assert scored.chances == pytest.approx([0.5, 0.2, 0.3, 0.1])


@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("rate", [0.0, 0.3, 0.6, 0.95])
def test_chances_come_to_what_happens(stated: bool, rate: float) -> None:
    """A chain of five whose candidates are right with the same chance, given the one before."""
    survival = Survival()
    parents, log_probs = [-1, 0, 1, 2, 3], [math.log(0.8)] * 5
    for i in range(60):
        scored = survival.score(parents, log_probs if stated else None)
        # the share of rounds that get so deep, spread evenly
        right = [d for d in range(5) if (i * 0.618034) % 1.0 < rate ** (d + 1)]
        survival.learn(scored, range(5), right)
    found = survival.score(parents, log_probs if stated else None).chances
    assert found == pytest.approx([rate ** (d + 1) for d in range(5)], abs=0.13)


def test_a_useless_draft_is_found_out_within_a_few_rounds() -> None:
    survival = Survival()
    log_probs = [math.log(0.9)] * 6
    for _ in range(3):
        scored = survival.score(range(-1, 5), log_probs)
        survival.learn(scored, range(6), [])
    assert sum(survival.score(range(-1, 5), log_probs).chances) < 0.5
    survival.forget()
    assert survival.score([-1], [math.log(0.9)]).chances == pytest.approx([0.9])


def test_what_was_learned_fades() -> None:
    survival = Survival()
    for _ in range(10):
        scored = survival.score([-1], [math.log(0.9)])
        survival.learn(scored, [0], [])
    low = survival.score([-1], [math.log(0.9)]).chances[0]
    for _ in range(600):
        survival.idle()
    assert low < 0.25 < 0.7 < survival.score([-1], [math.log(0.9)]).chances[0]


def test_the_report_has_a_line_per_bin() -> None:
    report = Survival().report()
    assert list(report) == [*(f"{edge:g}" for edge in EDGES), "1"]
    assert set(report.values()) == {1.0}


# -- plans -----------------------------------------------------------------------------------------


@given(
    st.lists(st.floats(0, 1), max_size=12).map(lambda drawn: sorted(drawn, reverse=True)),
    st.lists(st.floats(0, 1), min_size=14, max_size=14),
    st.floats(0.1, 3),
    st.booleans(),
)
def test_the_best_plan_is_the_best(
    chances: list[float], steps: list[float], late: float, draft: bool
) -> None:
    cost = [1.0 + sum(steps[:i]) for i in range(13)]
    paid = [0.1 * i for i in range(13)]
    rates = Rates(cost, paid, 1.0, late)
    gains = [
        1 + sum(chances[:n]) - late * (cost[n] + (paid[n] if draft else 0))
        for n in range(len(chances) + 1)
    ]
    plan = best_plan(chances, rates, draft=draft)
    assert gains[plan.nodes] == pytest.approx(max(gains))
    assert plan.gain == pytest.approx(max(gains))
    assert plan.tokens == pytest.approx(1 + sum(chances[: plan.nodes]))


def test_a_row_that_costs_what_it_brings_is_not_offered() -> None:
    assert best_plan([0.5, 0.5], Rates([1.0, 1.5, 2.0], [0.0] * 3, 1.0, 1.0)) == Plan(0, 1.0, 0.0)


# -- the gate --------------------------------------------------------------------------------------


def _pauses(gate: Gate, count: int, loss: float) -> list[int]:
    """Lengths of ``count`` pauses, each followed by a probe that fails."""
    found = []
    for _ in range(count):
        length = 0
        while not gate.probing:
            gate.wait()
            length += 1
        gate.probed(False, loss)
        found.append(length)
    return found


def test_pauses_double_up_to_what_probing_may_cost() -> None:
    gate = Gate(1000, 0.02)
    assert not gate.closed
    gate.gained(-0.5, 1.0)
    assert gate.closed and not gate.probing
    assert _pauses(gate, 5, 1.0) == [4, 8, 16, 32, 50]


def test_a_cheap_probe_comes_soon_and_the_longest_pause_is_kept() -> None:
    cheap = Gate(1000, 0.02)
    cheap.gained(-0.1, 0.01)
    assert _pauses(cheap, 4, 0.01) == [1, 1, 1, 1]
    short = Gate(7, 0.02)
    short.gained(-9.0, 99.0)
    assert _pauses(short, 4, 99.0) == [4, 7, 7, 7]


def test_a_probe_that_wins_opens_the_gate() -> None:
    gate = Gate(1000, 0.02)
    gate.gained(-0.5, 1.0)
    _pauses(gate, 4, 1.0)
    gate.probed(True, 0.0)
    assert not gate.closed
    gate.gained(0.5, 1.0)
    # a single bad round doesn't close it again
    gate.gained(-0.5, 1.0)
    assert not gate.closed
    gate.gained(-1.5, 1.0)
    assert gate.closed
