"""SamplingParams: defaults, normalisation, and one clear line for everything out of range."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from specla.core.sampling import Sampler, SamplingParams
from specla.errors import OptionError


def test_defaults_are_greedy_and_need_only_the_argmax() -> None:
    params = SamplingParams()
    assert params.is_greedy
    assert not params.needs_full_logits
    assert Sampler(params).top_needed(100) == 1


def test_frozen_and_hashable() -> None:
    params = SamplingParams(temperature=0.7, logit_bias={3: 1.0})
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.temperature = 1.0  # type: ignore[misc]
    assert hash(params) == hash(SamplingParams(temperature=0.7, logit_bias=((3, 1.0),)))


def test_values_become_plain_python_numbers() -> None:
    params = SamplingParams(
        temperature=np.float32(0.5), top_k=np.int64(4), seed=np.uint64(2**64 - 1), top_p=1
    )
    assert type(params.temperature) is float and params.temperature == 0.5
    assert type(params.top_k) is int and params.top_k == 4
    assert type(params.seed) is int and params.seed == 2**64 - 1
    assert type(params.top_p) is float


def test_bias_is_sorted_pairs_whatever_it_came_as() -> None:
    wanted = ((2, -1.0), (7, 0.5))
    assert SamplingParams(logit_bias={7: 0.5, 2: -1}).logit_bias == wanted
    assert SamplingParams(logit_bias=((7, 0.5), (2, -1.0))).logit_bias == wanted
    assert SamplingParams(logit_bias=[[7, 0.5], [2, -1.0]]).logit_bias == wanted  # type: ignore[arg-type]


BAD: list[tuple[str, Any, str]] = [
    *[("temperature", bad, "1e-06") for bad in (-0.1, math.nan, math.inf, 1e7, 1e-9, True, "1")],
    *[("top_k", bad, "0 (off)") for bad in (-1, 1.5, 2**31, False, None, math.nan)],
    *[("top_p", bad, "0 to 1") for bad in (-0.01, 1.01, math.nan, math.inf, True, 10**400)],
    *[("min_p", bad, "0 to 1") for bad in (-0.01, 1.01, math.nan, -math.inf, False, "x")],
    *[("seed", bad, str(2**64 - 1)) for bad in (-1, 2**64, 0.0, True)],
    *[("repetition_penalty", bad, "1 is off") for bad in (0, -1, math.nan, math.inf, 1e9, True)],
    *[("frequency_penalty", bad, "0 is off") for bad in (-101, 101, math.nan, math.inf, True)],
    *[("presence_penalty", bad, "0 is off") for bad in (-101, 101, math.nan, math.inf, True)],
    *[("penalty_window", bad, "whole history") for bad in (-1, 0.5, 2**31, True)],
    ("logit_bias", {-1: 1.0}, "token id"),
    ("logit_bias", {True: 1.0}, "token id"),
    ("logit_bias", {1.0: 1.0}, "token id"),
    ("logit_bias", {1: math.nan}, "token 1"),
    ("logit_bias", {1: -math.inf}, "token 1"),
    ("logit_bias", {1: True}, "token 1"),
    ("logit_bias", ((1, 0.0), (1, 2.0)), "twice"),
    ("logit_bias", (1, 2), "pairs"),
    ("logit_bias", 5, "mapping"),
    ("logit_bias", "ab", "mapping"),
    ("logit_bias", None, "mapping"),
]


@pytest.mark.parametrize(("name", "value", "remedy"), BAD)
def test_bad_value_gets_one_line_with_name_value_and_range(
    name: str, value: Any, remedy: str
) -> None:
    with pytest.raises(OptionError) as error:
        SamplingParams(**{name: value})
    message = str(error.value)
    assert "\n" not in message
    assert name in message and remedy in message
    if name != "logit_bias":
        assert repr(value) in message


@pytest.mark.parametrize(
    ("params", "full", "top"),
    [
        (SamplingParams(temperature=1.0), True, None),
        (SamplingParams(temperature=1.0, top_k=40), False, 40),
        (SamplingParams(temperature=1.0, top_k=4000), False, 100),
        (SamplingParams(top_k=40), False, 1),
        (SamplingParams(repetition_penalty=1.1), True, None),
        (SamplingParams(frequency_penalty=0.1), True, None),
        (SamplingParams(presence_penalty=-0.1), True, None),
        (SamplingParams(temperature=1.0, top_k=40, logit_bias={1: 1.0}), True, None),
        (SamplingParams(penalty_window=64), False, 1),
    ],
)
def test_what_must_cross_to_the_host(params: SamplingParams, full: bool, top: int | None) -> None:
    assert params.needs_full_logits is full
    assert Sampler(params).needs_full_logits is full
    assert Sampler(params).top_needed(100) == top
    assert Sampler(params, [lambda history, row: row]).top_needed(100) is None
