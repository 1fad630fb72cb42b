"""Combinators on a real target: whatever the inner adapters do, the text is that of plain decoding
and so is the state."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain import plain_run
from support.tiny import VOCAB, tiny_target

from specla.adapters.adaptive.adapter import AdaptiveAdapter
from specla.adapters.base import Adapter, Needs, create_adapter
from specla.adapters.fallback import FallbackAdapter
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.errors import OptionError
from specla.models.qwen35.target import Qwen35Target

# repeats itself, so that there is something to look up
PROMPT = (3, 1, 4, 1, 5, 3, 1, 4, 1, 5, 3, 1, 4, 1)
GREEDY = Sampler(SamplingParams())
SAMPLED = Sampler(SamplingParams(temperature=1.0, seed=7))
COUNT = 24
LAYERS = (0, 2)
TARGET: Qwen35Target


@pytest.fixture(autouse=True, scope="module")
def _a_target_on_each_backend(backend_name: str) -> None:
    global TARGET
    TARGET = tiny_target(context=128, max_nodes=17, features=LAYERS)


def test_the_backend_is_the_one_asked_for(backend_name: str) -> None:
    assert TARGET.backend.name == backend_name


class Truth(Adapter):
    """Knows the text and proposes it with some wrong siblings, by a seed."""

    def __init__(self, truth: Sequence[int], seed: int, layers: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.truth, self.layers = truth, layers
        self.random = random.Random(seed)
        self.told: list[Outcome] = []
        self.proposed: list[Proposal] = []
        self.texts: list[list[int]] = []

    def needs(self) -> Needs:
        return Needs(features=self.layers)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self._tree(view) for view in views]

    def _tree(self, view: SequenceView) -> Proposal:
        if self.layers:
            hidden = np.asarray(view.features(0, len(view.tokens) - 1))
            assert hidden.shape[1] == len(self.layers)
        rng, tokens, parents, log_probs = self.random, [], [], []
        spine = -1
        for right in self.truth[len(view.tokens) - view.prompt_length :]:
            family = {right} | {rng.randrange(VOCAB) for _ in range(rng.randrange(3))}
            if len(tokens) + len(family) > view.budget:
                break
            if rng.random() < 0.2:
                family.discard(right)
            for token in sorted(family):
                tokens.append(token)
                parents.append(spine)
                log_probs.append(-0.2 if token == right else -2.0)
            if right not in family:
                break
            spine = tokens.index(right, len(tokens) - len(family))
        self.proposed.append(Proposal(tokens, parents, log_probs))
        return self.proposed[-1]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes
        self.texts += [list(view.tokens) for view in views]


class Hostile(Adapter):
    """Answers by a seed with anything that can go wrong, and now and then raises elsewhere."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random = random.Random(seed)

    def _raise(self) -> None:
        if self.random.random() < 0.3:
            raise RuntimeError("no")

    def open(self, view: SequenceView) -> None:
        self._raise()

    def propose(self, views: Sequence[SequenceView]) -> list[Any]:
        self._raise()
        answers: list[Callable[[], Any]] = [
            lambda: Proposal(),
            lambda: Proposal([1, 2], [1, -1]),
            lambda: Proposal([1, 1], [-1, -1]),
            lambda: Proposal([VOCAB], [-1]),
            lambda: Proposal([1], [-1], [float("nan")]),
            lambda: Proposal(list(range(30)), [-1] * 30),
            lambda: Proposal.chain([self.random.randrange(VOCAB)] * 3, [-0.1] * 3),
            lambda: Proposal([self.random.randrange(VOCAB)], [-1]),
            lambda: None,
            lambda: "text",
        ]
        return [self.random.choice(answers)() for _ in views]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self._raise()

    def close(self, view: SequenceView) -> None:
        self._raise()


class Moody(Truth):
    """Asks for other layers each time it is asked what it needs."""

    def needs(self) -> Needs:
        self.layers = self.layers[::-1]
        return Needs(features=self.layers)


def _clock(seed: int) -> Callable[[], float]:
    """A clock that jumps: what it says decides the speed, never the text."""
    rng, now = random.Random(seed), [0.0]

    def read() -> float:
        now[0] += rng.choice((0.0, 1e-5, 1e-3, 0.1))
        return now[0]

    return read


def _made(shape: Any, truth: Sequence[int], seed: int) -> Adapter:
    if isinstance(shape, str):
        if shape == "truth":
            return Truth(truth, seed)
        if shape == "looking":
            return Truth(truth, seed, LAYERS[seed % 2 :])
        if shape == "moody":
            return Moody(truth, seed, LAYERS)
        return Hostile(seed) if shape == "hostile" else create_adapter(shape)
    kind, inner = shape
    made = [_made(one, truth, seed + i) for i, one in enumerate(inner)]
    if kind == "adaptive":
        return AdaptiveAdapter(None, made[:1], clock=_clock(seed))
    return FallbackAdapter(None, made)


shapes = st.recursive(
    st.sampled_from(["suffix", "ngram", "none", "truth", "looking", "moody", "hostile"]),
    lambda inner: st.tuples(
        st.sampled_from(["adaptive", "fallback"]), st.lists(inner, min_size=1, max_size=3)
    ),
    max_leaves=5,
).map(lambda shape: shape if isinstance(shape, tuple) else ("fallback", [shape]))


@settings(max_examples=25)
@given(shapes, st.booleans(), st.integers(0, 99), st.integers(1, 16))
def test_the_text_is_that_of_plain_decoding(
    shape: Any, sampled: bool, seed: int, budget: int
) -> None:
    sampler = SAMPLED if sampled else GREEDY
    plain, state = plain_run(TARGET, PROMPT, COUNT, sampler)
    adapter = _made(shape, plain.tokens, seed)
    with Session(TARGET, adapter, PROMPT, adapter_name="it") as session:
        for part in (COUNT // 2, COUNT - COUNT // 2):
            list(session.generate(Request(part, sampler, budget=budget)))
        assert list(session.tokens) == [*PROMPT, *plain.tokens]
        ours = TARGET.state_arrays(session.sequence)
        assert all(ours[name].tobytes() == array.tobytes() for name, array in state.items())
        # combinators deliver nothing bad: what an inner adapter did wrong is an adapter error
        assert session.stats.refused == 0
    if "hostile" not in repr(shape):
        assert session.stats.adapter_errors == 0, session.stats.adapter_error


@pytest.mark.parametrize("wrap", ["fallback", "adaptive", "both"])
def test_an_inner_adapter_can_follow_its_own_outcomes(wrap: str) -> None:
    plain, _ = plain_run(TARGET, PROMPT, COUNT, GREEDY)
    inner = Truth(plain.tokens, 3, (2,))
    adapter: Adapter = inner
    if wrap != "adaptive":
        adapter = FallbackAdapter(None, [create_adapter("none"), adapter])
    if wrap != "fallback":
        adapter = AdaptiveAdapter(None, [adapter], clock=lambda: 0.0)
    with Session(TARGET, adapter, PROMPT) as session:
        list(session.generate(Request(COUNT, GREEDY, budget=12)))
        assert session.stats.adapter_errors == 0
    assert any(outcome.accepted for outcome in inner.told)
    assert len(inner.told) <= len(inner.proposed)
    for outcome, text in zip(inner.told, inner.texts, strict=True):
        matching = [
            p
            for p in inner.proposed
            if [*(p.tokens[i] for i in outcome.accepted if i < len(p.tokens)), outcome.bonus]
            == text[len(text) - len(outcome.accepted) - 1 :]
        ]
        assert matching, "accepted candidates are those of one of its own proposals"


def test_failures_are_counted_and_named() -> None:
    class Raising(Truth):
        def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
            raise RuntimeError("no way")

    plain, _ = plain_run(TARGET, PROMPT, 12, GREEDY)
    adapter = FallbackAdapter(None, [Raising([], 0), Truth(plain.tokens, 0)], ["bad", "good"])
    with Session(TARGET, adapter, PROMPT, adapter_name="fallback(bad, good)") as session:
        list(session.generate(Request(12, GREEDY, budget=6)))
        assert list(session.tokens)[len(PROMPT) :] == plain.tokens
        # named in each round with room for candidates, which the last may not have
        assert session.stats.rounds - 1 <= session.stats.adapter_errors <= session.stats.rounds
        assert "adapter 'bad' failed in propose: RuntimeError: no way" in (
            session.stats.adapter_error or ""
        )
        assert session.stats.mean_accept_length > 1.5


def test_layers_that_are_not_captured_are_refused_before_decoding() -> None:
    class Growing(Truth):
        asked = 0

        def needs(self) -> Needs:
            self.asked += 1
            return Needs(features=(2,) if self.asked == 1 else (1,))

    adapter = FallbackAdapter(None, [Growing([], 0)], ["growing"])
    with pytest.raises(OptionError, match=r"'growing' needs features of layers \[1\]"):
        Session(TARGET, adapter, PROMPT)
    TARGET.close(TARGET.open())
