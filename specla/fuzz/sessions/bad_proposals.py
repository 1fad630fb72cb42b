"""Answers of an adapter that must be refused, each in a round like any other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from specla.core.proposal import Proposal
from specla.fuzz.sessions.proposals import Moment


def _endless() -> Proposal:
    return Proposal(itertools.count(), itertools.count(-1))  # type: ignore[arg-type]


def _breaks_off() -> Proposal:
    def tokens() -> Iterator[int]:
        yield 1
        raise LookupError("half-way")

    return Proposal(tokens(), [-1])  # type: ignore[arg-type]


def _raise(error: BaseException) -> Any:
    raise error


def _assign(moment: Moment) -> Any:
    moment.view.tokens[-1] = 0  # type: ignore[index]
    return [Proposal()]


def _append(moment: Moment) -> Any:
    moment.view.tokens.append(0)  # type: ignore[attr-defined]
    return [Proposal()]


def _more_budget(moment: Moment) -> Any:
    object.__setattr__(moment.view, "budget", 10_000)
    object.__setattr__(moment.view, "max_depth", 10_000)
    return _over_budget(moment, 3)


def _over_budget(moment: Moment, by: int = 1) -> Any:
    count = moment.view.budget + by if moment.view.budget < 1000 else 400
    return [Proposal.chain(moment.future(2) + [0] * (count - 2))]


def _features_beyond(moment: Moment) -> Any:
    moment.view.features(0, len(moment.view.tokens) + 3)
    return [Proposal()]


def _write_features(moment: Moment) -> Any:
    moment.view.features(0, len(moment.view.tokens) - 1)[...] = 0
    return None


def _one(token: Any, parent: Any = -1, log_probs: Any = None) -> Callable[[Moment], Any]:
    return lambda moment: [Proposal([token], [parent], log_probs)]


def _twins(moment: Moment) -> Any:
    right = moment.future(1) * 2
    return [Proposal(right, [-1, -1])] if moment.view.budget > 1 else None


BAD: dict[str, Callable[[Moment], Any]] = {
    "nothing at all": lambda moment: None,
    "no proposal": lambda moment: [],
    "two proposals": lambda moment: [Proposal(), Proposal()],
    "a proposal without a list": lambda moment: Proposal(moment.future(1), [-1]),
    "text": lambda moment: ["abc"],
    "a number": lambda moment: [7],
    "parent after child": lambda moment: [Proposal(moment.future(2), [1, -1])],
    "own parent": lambda moment: [Proposal(moment.future(1), [0])],
    "cycle": lambda moment: [Proposal(moment.future(2), [1, 0])],
    "parent -2": lambda moment: [Proposal(moment.future(1), [-2])],
    "huge parent": lambda moment: [Proposal(moment.future(1), [2**70])],
    "float parent": lambda moment: [Proposal(moment.future(1), [-1.0])],  # type: ignore[list-item]
    "NaN parent": lambda moment: [Proposal(moment.future(1), [float("nan")])],  # type: ignore[list-item]
    "text as parent": lambda moment: [Proposal(moment.future(1), ["-1"])],  # type: ignore[list-item]
    "twins": _twins,
    "token beyond the vocabulary": lambda moment: [Proposal([moment.vocab_size], [-1])],
    "negative token": _one(-1),
    "huge token": _one(2**80),
    "truth value": _one(True),
    "NumPy truth value": _one(np.bool_(True)),
    "NumPy float": _one(np.float32(1.0)),
    "text as token": _one("1"),
    "no parents": lambda moment: [Proposal(moment.future(1), [])],
    "more parents": lambda moment: [Proposal([], [-1])],
    "NaN log-probability": _one(1, -1, [float("nan")]),
    "positive log-probability": _one(1, -1, [0.5]),
    "log-probabilities missing": _one(1, -1, []),
    "too many": _over_budget,
    "endless": lambda moment: [_endless()],
    "breaks off": lambda moment: [_breaks_off()],
    "raises": lambda moment: _raise(RuntimeError("no")),
    "raises GeneratorExit": lambda moment: _raise(GeneratorExit()),
    "raises StopIteration": lambda moment: _raise(StopIteration()),
    "raises MemoryError": lambda moment: _raise(MemoryError()),
    "assigns a token": _assign,
    "appends a token": _append,
    "takes more budget": _more_budget,
    "features beyond the state": _features_beyond,
    "writes features": _write_features,
}
