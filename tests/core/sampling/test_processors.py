"""Penalties and bias: hand-worked values, and a plain loop over the history as the oracle."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.core.sampling import SamplingParams
from specla.core.sampling.processors import (
    FrequencyPresencePenalty,
    LogitBias,
    RepetitionPenalty,
    built_in,
)
from specla.errors import OptionError, SpeclaError

VOCAB = 9
ROW = st.lists(st.floats(-30, 30, width=32), min_size=VOCAB, max_size=VOCAB)
HISTORY = st.lists(st.integers(0, VOCAB - 1), max_size=30)
F = np.float32


def test_repetition_hand_worked() -> None:
    row = np.array([3.0, -3.0, 0.0, 3.0], F)
    got = RepetitionPenalty(1.5)([0, 1, 2, 0], row)
    assert got.tolist() == [2.0, -4.5, 0.0, 3.0]
    assert row.tolist() == [3.0, -3.0, 0.0, 3.0]


def test_frequency_and_presence_hand_worked() -> None:
    row = np.array([1.0, 1.0, 1.0], F)
    got = FrequencyPresencePenalty(0.5, 0.25)([0, 0, 0, 2], row)
    assert got.tolist() == [-0.75, 1.0, 0.25]


def test_window_sees_the_last_tokens_only() -> None:
    row = np.zeros(3, F)
    history = [0, 1, 1, 2]
    assert FrequencyPresencePenalty(1.0, 0.0, 2)(history, row).tolist() == [0.0, -1.0, -1.0]
    assert FrequencyPresencePenalty(1.0, 0.0, 9)(history, row).tolist() == [-1.0, -2.0, -1.0]
    assert FrequencyPresencePenalty(1.0, 0.0, 0)(history, row).tolist() == [-1.0, -2.0, -1.0]


def test_bias_hand_worked() -> None:
    assert LogitBias(((0, 1.5), (2, -1e9)))([], np.ones(3, F)).tolist() == [2.5, 1.0, F(1 - 1e9)]


@given(row=ROW, history=HISTORY, window=st.integers(0, 12))
def test_penalties_equal_a_plain_loop(row: list[float], history: list[int], window: int) -> None:
    ratio, frequency, presence = F(1.3), F(0.37), F(-0.21)
    recent = history[-window:] if window else history
    wanted = [F(value) for value in row]
    for token in set(recent):
        value = wanted[token]
        wanted[token] = value / ratio if value > 0 else value * ratio
    repeated = list(wanted)
    for token, count in Counter(recent).items():
        wanted[token] = wanted[token] - (F(count) * frequency + presence)

    logits = np.array(row, F)
    first = RepetitionPenalty(1.3, window)(history, logits)
    second = FrequencyPresencePenalty(0.37, -0.21, window)(tuple(history), first)
    assert first.dtype == second.dtype == F
    assert first.tobytes() == np.array(repeated, F).tobytes()
    assert second.tobytes() == np.array(wanted, F).tobytes()
    assert logits.tobytes() == np.array(row, F).tobytes()


def test_forbidden_tokens_stay_forbidden_and_nothing_warns() -> None:
    row = np.array([-np.inf, np.inf, np.nan, 3e38], F)
    seen = [0, 1, 2, 3]
    for processor in (
        RepetitionPenalty(1e-6),
        RepetitionPenalty(1e6),
        FrequencyPresencePenalty(100.0, -100.0),
        LogitBias(tuple((i, 1e9) for i in range(4))),
    ):
        got = processor(seen, row)
        assert got[0] == -np.inf and got[1] == np.inf and np.isnan(got[2])


@pytest.mark.parametrize("token", [-1, 3, 2**40])
def test_history_outside_the_vocabulary(token: int) -> None:
    with pytest.raises(SpeclaError, match=rf"history holds token {token}; .* tokens 0\.\.2$"):
        RepetitionPenalty(1.5)([0, token], np.ones(3, F))


def test_bias_outside_the_vocabulary() -> None:
    with pytest.raises(OptionError, match=r"logit_bias names token 3; the model has tokens 0\.\.2"):
        LogitBias(((3, 1.0),))([], np.ones(3, F))


def test_order_of_the_built_in_chain() -> None:
    params = SamplingParams(
        repetition_penalty=1.5, presence_penalty=1.0, penalty_window=4, logit_bias={3: 1.0, 1: 2.0}
    )
    assert built_in(params) == (
        RepetitionPenalty(1.5, 4),
        FrequencyPresencePenalty(0.0, 1.0, 4),
        LogitBias(((1, 2.0), (3, 1.0))),
    )
    assert built_in(SamplingParams(temperature=1.0, top_k=3)) == ()
