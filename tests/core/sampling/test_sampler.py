"""The whole chain: against a slow float64 sampler, distribution, order invariance, fast path."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from specla.core.sampling import DRAFT_STREAM, Sampler, SamplingParams, uniform
from specla.errors import OptionError, SpeclaError

F = np.float32
# a coarse grid makes ties common; -inf and NaN are tokens that can't be chosen
LOGIT = (
    st.integers(-12, 12).map(lambda n: n / 4)
    | st.sampled_from([-math.inf, math.nan, -0.0])
    | st.floats(-40, 40, width=32)
)
ROW = st.lists(LOGIT, min_size=1, max_size=40).filter(
    lambda row: any(value > -math.inf for value in row)
)
SETTING = st.builds(
    SamplingParams,
    temperature=st.floats(0.05, 5),
    top_k=st.integers(0, 45),
    top_p=st.just(1.0) | st.floats(0, 1),
    min_p=st.just(0.0) | st.floats(0, 1),
    seed=st.integers(0, 2**64 - 1),
)


def slow_candidates(row: list[float], params: SamplingParams) -> tuple[list[int], list[float]]:
    """Ids and probabilities, by the definitions, in float64. Refuses examples on a knife's edge:
    there float32 exponentials may rightly decide otherwise."""
    able = [i for i, value in enumerate(row) if value > -math.inf]
    ids = sorted(able, key=lambda i: (-row[i], i))
    ids = ids[: params.top_k or None]
    numerators = [math.exp((row[i] - row[ids[0]]) / params.temperature) for i in ids]
    probabilities = [x / math.fsum(numerators) for x in numerators]
    if params.top_p < 1.0:
        count, total = 0, 0.0
        while count == 0 or (total < params.top_p and count < len(ids)):
            total += probabilities[count]
            count += 1
            assume(abs(total - params.top_p) > 1e-4)
        ids, probabilities = ids[:count], probabilities[:count]
    if params.min_p > 0.0:
        edge = params.min_p * probabilities[0]
        assume(all(abs(p / edge - 1) > 1e-4 or p == probabilities[0] for p in probabilities))
        pairs = [(i, p) for i, p in zip(ids, probabilities, strict=True) if p >= edge]
        ids, probabilities = [i for i, _ in pairs], [p for _, p in pairs]
    whole = math.fsum(probabilities)
    return ids, [p / whole for p in probabilities]


def slow_choice(row: list[float], params: SamplingParams, position: int) -> int:
    ids, probabilities = slow_candidates(row, params)
    u, total = uniform(params.seed, position), 0.0
    for token, p in zip(ids, probabilities, strict=True):
        total += p
        assume(abs(total - u) > 1e-4)
        if u < total:
            return token
    raise AssertionError("probabilities don't reach 1")


@given(row=ROW, params=SETTING, position=st.integers(0, 10**6))
def test_choice_equals_the_slow_sampler(
    row: list[float], params: SamplingParams, position: int
) -> None:
    wanted = slow_choice(row, params, position)
    assert Sampler(params).choose(np.array(row, F), [], position) == wanted


@given(row=ROW, params=SETTING)
def test_candidates_equal_the_slow_sampler(row: list[float], params: SamplingParams) -> None:
    wanted_ids, wanted = slow_candidates(row, params)
    ids, weight = Sampler(params).candidates(np.array(row, F), [])
    assert weight / weight.sum() == pytest.approx(wanted[: weight.size], rel=2e-4)
    # what the slow sampler has beyond is too unlikely for float32
    assert ids.tolist() == wanted_ids[: ids.size]
    assert all(p < 1e-35 for p in wanted[ids.size :])


@given(row=ROW)
def test_greedy_is_the_first_of_the_highest(row: list[float]) -> None:
    wanted = max(range(len(row)), key=lambda i: (row[i] if row[i] > -math.inf else -math.inf, -i))
    sampler = Sampler(SamplingParams(seed=3))
    assert sampler.choose(np.array(row, F), [], 0) == wanted
    assert sampler.candidates(np.array(row, F), [])[0].tolist() == [wanted]


# --- the fast path: a device sends its top-k only ---------------------------------------------


def device_top_k(row: list[float], k: int) -> tuple[np.ndarray, np.ndarray]:
    """What a device sends: values descending, ties to the lowest id, NaN as -inf."""
    values = [-math.inf if math.isnan(value) else value for value in row]
    ids = sorted(range(len(row)), key=lambda i: (-values[i], i))[:k]
    return np.array([values[i] for i in ids], F), np.array(ids, np.int32)


@given(row=ROW, params=SETTING, position=st.integers(0, 10**6), extra=st.integers(0, 3))
def test_choice_from_the_top_equals_the_full_row(
    row: list[float], params: SamplingParams, position: int, extra: int
) -> None:
    assume(params.top_k > 0)
    sampler = Sampler(params)
    k = sampler.top_needed(len(row))
    assert k is not None
    values, ids = device_top_k(row, k + extra)
    full = sampler.choose(np.array(row, F), [], position)
    assert sampler.choose_from_top(values, ids, position, vocab_size=len(row)) == full
    assert sampler.choose_from_top(values[::-1], ids[::-1], position, vocab_size=len(row)) == full


@given(row=ROW)
def test_greedy_from_the_top_one(row: list[float]) -> None:
    sampler = Sampler(SamplingParams())
    values, ids = device_top_k(row, 1)
    assert sampler.choose_from_top(values, ids, 5) == sampler.choose(np.array(row, F), [], 5)


def test_temperature_does_not_merge_neighbours_at_the_cut() -> None:
    # two neighbours below 2 divided by 1.75 round to one number; the higher id has the higher logit
    high = F(2 - 2.0**-22)
    row = np.array([np.nextafter(high, F(0)), high, 0.0], F)
    assert row[0] < row[1] and row[0] / F(1.75) == row[1] / F(1.75)
    sampler = Sampler(SamplingParams(temperature=1.75, top_k=1))
    assert sampler.choose(row, [], 0) == 1


def test_large_row_with_many_ties() -> None:
    rng = np.random.default_rng(7)
    row = rng.integers(0, 50, 50_000).astype(F) / 8
    for k in (1, 7, 40, 3000):
        sampler = Sampler(SamplingParams(temperature=1.0, top_k=k, seed=k))
        order = np.lexsort((np.arange(row.size), -row))[:k]
        assert sampler.candidates(row, [])[0].tolist() == order.tolist()
        assert sampler.choose(row, [], 1) == sampler.choose_from_top(row[order], order, 1)


def test_fast_path_refuses_what_it_cannot_decide() -> None:
    values, ids = np.array([2.0, 1.0], F), np.array([4, 1])
    for params in (
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=1.0, top_k=2, presence_penalty=1.0),
        SamplingParams(logit_bias={1: 1.0}),
    ):
        with pytest.raises(SpeclaError, match="needs the whole row of logits"):
            Sampler(params).choose_from_top(values, ids, 0)
    top = SamplingParams(temperature=1.0, top_k=3)
    with pytest.raises(SpeclaError, match="needs the whole row of logits"):
        Sampler(top, [lambda history, row: row]).choose_from_top(values, ids, 0)
    with pytest.raises(SpeclaError, match="2 highest logits for a top_k of 3"):
        Sampler(top).choose_from_top(values, ids, 0)
    with pytest.raises(SpeclaError, match="ids of shape"):
        Sampler(top).choose_from_top(values, ids[:1], 0)


# --- distribution and determinism -------------------------------------------------------------

DRAWS = 6000
CHI_SQUARE_7 = 24.32  # 99.9 % quantile at 7 degrees of freedom
LOGITS = np.array([1.0, 0.5, -0.25, 2.0, 0.0, 1.5, -0.5, 0.75], F)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    expected = probabilities * counts.sum()
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("keyed_by", ["seed", "position"])
@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.8])
def test_tokens_follow_softmax(keyed_by: str, temperature: float) -> None:
    if keyed_by == "seed":
        pairs = [(seed, 17) for seed in range(DRAWS)]
    else:
        pairs = [(5, position) for position in range(DRAWS)]
    tokens = [
        Sampler(SamplingParams(temperature=temperature, seed=seed)).choose(LOGITS, [], position)
        for seed, position in pairs
    ]
    counts = np.bincount(tokens, minlength=LOGITS.size)
    softmax = np.exp(LOGITS.astype(np.float64) / temperature)
    assert chi_square(counts, softmax / softmax.sum()) < CHI_SQUARE_7
    # the test has teeth: a temperature 25 % off is refused
    wrong = np.exp(LOGITS.astype(np.float64) / (temperature * 1.25))
    assert chi_square(counts, wrong / wrong.sum()) > CHI_SQUARE_7


FULL = SamplingParams(
    temperature=0.9,
    top_k=20,
    top_p=0.95,
    min_p=0.02,
    seed=11,
    repetition_penalty=1.2,
    frequency_penalty=0.1,
    presence_penalty=0.2,
    penalty_window=16,
    logit_bias={3: 0.5, 8: -2.0},
)


def case(i: int) -> tuple[np.ndarray, list[int], int]:
    """A row on a grid (no platform's libm in it), a history and a position."""
    row = np.array([(i * 37 + t * 101) % 61 / 16 for t in range(32)], F)
    history = [(i * 7 + j * j) % 32 for j in range(5 + i % 20)]
    return row, history, len(history)


def test_evaluation_order_does_not_matter() -> None:
    sampler = Sampler(FULL)
    indices = list(range(60))
    first = {i: sampler.choose(*case(i)) for i in indices}
    random.Random(2).shuffle(indices)
    for i in indices:
        assert sampler.choose(*case(i)) == first[i]
        assert Sampler(FULL).choose(*case(i)) == first[i]


def test_golden_choices() -> None:
    """A seed is a promise: these tokens change only with the number contract."""
    assert [Sampler(FULL).choose(*case(i)) for i in range(24)] == GOLDEN


GOLDEN = [3, 6, 4, 12, 13, 6, 5, 24, 4, 23, 16, 11, 27, 10, 11, 15, 3, 30, 3, 19, 18, 18, 16, 21]


def test_streams_are_independent() -> None:
    params = SamplingParams(temperature=1.0)
    target = [Sampler(params).choose(LOGITS, [], i) for i in range(400)]
    draft = [Sampler(params, stream=DRAFT_STREAM).choose(LOGITS, [], i) for i in range(400)]
    softmax = np.exp(LOGITS.astype(np.float64))
    chance = float(((softmax / softmax.sum()) ** 2).sum())
    agree = sum(a == b for a, b in zip(target, draft, strict=True)) / 400
    assert abs(agree - chance) < 4 * math.sqrt(chance * (1 - chance) / 400)


# --- the chain, users' processors, errors -----------------------------------------------------


def test_chain_order_hand_worked() -> None:
    seen: list[list[float]] = []

    def spy(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        seen.append(logits.tolist())
        return logits

    params = SamplingParams(
        repetition_penalty=2.0, frequency_penalty=0.5, presence_penalty=1.0, logit_bias={0: 8.0}
    )
    row = np.array([4.0, -4.0, 1.0], F)
    assert Sampler(params, [spy]).choose(row, [0, 0, 1], 3) == 0
    # token 0: 4 / 2 - (2 * 0.5 + 1) + 8; token 1: -4 * 2 - (0.5 + 1)
    assert seen == [[8.0, -9.5, 1.0]]


def test_user_processors_act_in_order_on_a_private_row() -> None:
    def forbid_best(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        logits[int(np.argmax(logits))] = -np.inf
        return logits

    row = np.array([3.0, 2.0, 1.0], F)
    assert Sampler(SamplingParams(), [forbid_best]).choose(row, [], 0) == 1
    assert Sampler(SamplingParams(), [forbid_best, forbid_best]).choose(row, [], 0) == 2
    assert row.tolist() == [3.0, 2.0, 1.0]


def test_plus_infinity_forces_a_token() -> None:
    def force(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        logits[[1, 3]] = np.inf
        return logits

    for setting in ({}, {"temperature": 1.0}, {"temperature": 0.3, "top_p": 0.4, "min_p": 0.5}):
        params = SamplingParams(**setting)  # type: ignore[arg-type]
        got = {Sampler(params, [force]).choose(LOGITS, [], i) for i in range(40)}
        assert got == ({1, 3} if setting == {"temperature": 1.0} else {1})


@pytest.mark.parametrize(
    "result",
    [
        None,
        [1.0] * 8,
        np.zeros(8),
        np.zeros(7, F),
        np.zeros((8, 1), F),
    ],
)
def test_bad_processor_result_names_the_processor(result: Any) -> None:
    def broken(history: Sequence[int], logits: np.ndarray) -> Any:
        return result

    with pytest.raises(SpeclaError, match=r"logit processor broken is .*; want .*float32.*\[8\]"):
        Sampler(SamplingParams(), [broken]).choose(LOGITS, [], 0)


@pytest.mark.parametrize("setting", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 2}])
@pytest.mark.parametrize("row", [[-math.inf] * 3, [math.nan] * 3, [math.nan, -math.inf, math.nan]])
def test_no_possible_token(setting: dict[str, Any], row: list[float]) -> None:
    sampler = Sampler(SamplingParams(**setting))
    message = "no token is possible at position 9: every logit is NaN or -inf"
    with pytest.raises(SpeclaError, match=message):
        sampler.choose(np.array(row, F), [0] * 9, 9)
    with pytest.raises(SpeclaError, match=message):
        sampler.candidates(np.array(row, F), [0] * 9)
    if sampler.top_needed(3):
        with pytest.raises(SpeclaError, match=message):
            sampler.choose_from_top(np.array(row, F), np.arange(3), 9)


@pytest.mark.parametrize(
    "row", [[1.0], np.zeros(3), np.zeros((1, 3), F), np.zeros(0, F), np.zeros(3, np.float16)]
)
def test_bad_row(row: Any) -> None:
    with pytest.raises(SpeclaError, match=r"row of logits is .* want .*float32"):
        Sampler(SamplingParams()).choose(row, [], 0)


def test_bad_position() -> None:
    with pytest.raises(OptionError, match="position is -1"):
        Sampler(SamplingParams(temperature=1.0)).choose(LOGITS, [], -1)
