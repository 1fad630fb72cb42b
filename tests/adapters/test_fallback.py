"""The fallback adapter: who is asked, who is told what, and what happens to failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from adapter_views import view
from hypothesis import given
from hypothesis import strategies as st

from specla.adapters.base import Adapter
from specla.adapters.fallback import FallbackAdapter
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.errors import ProposalError


class Scripted(Adapter):
    """Answers what it is told to, and keeps what it hears."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer
        self.asked = 0
        self.told: list[tuple[int, Outcome]] = []
        self.texts: list[list[int]] = []

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        self.asked += 1
        self.texts += [list(seen.tokens) for seen in views]
        if isinstance(self.answer, Exception):
            raise self.answer
        answers = self.answer if isinstance(self.answer, list) else [self.answer] * len(views)
        return [Proposal() if answer is None else answer for answer in answers]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.told += [(seen.key, outcome) for seen, outcome in zip(views, outcomes, strict=True)]


BAD: dict[str, Any] = {
    "raises": RuntimeError("no\nway"),
    "own parent": Proposal([1], [0]),
    "twins": Proposal([1, 1], [-1, -1]),
    "no list": 7,
    "too many": Proposal(list(range(9)), [-1] * 9),
    "NaN": Proposal([1], [-1], [float("nan")]),
    "no proposal": ["abc"],
    "two proposals": [Proposal(), Proposal()],
    "endless": Proposal(iter(int, 1), iter(int, 1)),  # type: ignore[arg-type]
}
CHAIN = Proposal([5, 6], [-1, 0])


def round_of(adapter: FallbackAdapter, outcome: Outcome, new: Sequence[int]) -> Proposal:
    (proposal,) = adapter.propose([view([1, 2, 3], budget=8)])
    adapter.observe([view([1, 2, 3, *new], budget=0)], [outcome])
    return proposal


def test_the_first_that_proposes_is_verified_and_told() -> None:
    first, second, third = Scripted(), Scripted(CHAIN), Scripted(CHAIN)
    adapter = FallbackAdapter(None, [first, second, third])
    outcome = Outcome((0, 1), 9, None, 3, 0.5)
    assert round_of(adapter, outcome, [5, 6, 9]) == CHAIN
    assert (first.asked, second.asked, third.asked) == (1, 1, 0)
    # what the first proposed was not verified, and the third was not asked
    assert (first.told, second.told, third.told) == ([], [(0, outcome)], [])
    assert [one["proposed"] for one in adapter.report()["inner"]] == [0, 1, 0]


def test_a_plain_round_is_told_to_all_who_proposed_nothing() -> None:
    inner = [Scripted(), Scripted()]
    adapter = FallbackAdapter(None, inner)
    outcome = Outcome((), 9, None, 1)
    assert round_of(adapter, outcome, [9]) == Proposal()
    assert [one.told for one in inner] == [[(0, outcome)]] * 2


def test_a_round_without_room_is_nobodys() -> None:
    inner = Scripted(CHAIN)
    adapter = FallbackAdapter(None, [inner])
    adapter.observe([view([1, 2])], [Outcome((), 2, None, 1)])
    assert inner.told == []


@pytest.mark.parametrize("answer", BAD.values(), ids=BAD.keys())
def test_a_failure_lets_the_next_propose_and_is_named(answer: Any) -> None:
    if answer is BAD["endless"]:
        answer = Proposal(iter(int, 1), iter(int, 1))  # type: ignore[arg-type]
    bad, good = Scripted(answer), Scripted(CHAIN)
    adapter = FallbackAdapter(None, [bad, good], ["bad", "good"])
    (proposal,) = adapter.propose([view([1, 2, 3], budget=8)])
    assert proposal == CHAIN
    with pytest.raises(ProposalError, match="adapter 'bad'") as caught:
        adapter.observe([view([1, 2, 3, 5, 7], budget=0)], [Outcome((0,), 7, None, 3, 0.5)])
    assert "\n" not in str(caught.value)
    assert good.told == [(0, Outcome((0,), 7, None, 3))]
    # in its own numbering nothing was accepted, and 5 came after the root
    ((_, told),) = bad.told
    assert (told.accepted, told.bonus, told.rows) == ((), 5, 3)
    assert "'bad'" in (told.refused or "")
    assert [one["failed"] for one in adapter.report()["inner"]] == [1, 0]
    # the next round starts afresh
    bad.answer = None
    assert round_of(adapter, Outcome((), 4, None, 3), [4]) == CHAIN


def test_failures_of_all_are_named_and_the_round_is_plain() -> None:
    class Deaf(Scripted):
        def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
            raise KeyError("ears")

    inner = [Scripted(RuntimeError("a")), Deaf(), Scripted(RuntimeError("c"))]
    adapter = FallbackAdapter(None, inner, ["x", "y", "z"])
    assert adapter.propose([view([1, 2, 3])]) == [Proposal()]
    with pytest.raises(ProposalError, match=r"'x'.*'z'.*'y' failed in observe: KeyError"):
        adapter.observe([view([1, 2, 3, 4])], [Outcome((), 4, None, 1)])
    assert inner[2].told[0][1].bonus == 4


def test_numpy_numbers_become_plain_ones() -> None:
    import numpy as np

    given_ = Proposal(np.array([5, 6]), np.array([-1, 0]), np.array([-0.5, 1e-6], np.float32))  # type: ignore[arg-type]
    (proposal,) = FallbackAdapter(None, [Scripted(given_)]).propose([view([1, 2, 3])])
    assert proposal == Proposal([5, 6], [-1, 0], [-0.5, 0.0])
    assert {type(t) for t in [*proposal.tokens, *proposal.parents]} == {int}


@given(
    st.lists(
        st.lists(st.sampled_from([None, 1, 2, "bad"]), min_size=3, max_size=3),
        min_size=1,
        max_size=4,
    ),
    st.data(),
)
def test_in_a_batch_each_sequence_gets_its_own_first(
    answers: list[list[Any]], data: st.DataObject
) -> None:
    """answers: per adapter and sequence nothing, a proposal of so many candidates, or a bad one."""

    class PerKey(Scripted):
        def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
            return [self.answer[seen.key] for seen in views]

    def made(answer: Any, number: int) -> Proposal:
        if answer == "bad":
            return Proposal([1], [5])
        return Proposal.chain([number] * (answer or 0))

    inner = [PerKey([made(answer, number) for answer in row]) for number, row in enumerate(answers)]
    adapter = FallbackAdapter(None, inner)
    views = [view([1, 2, 3], key=key) for key in range(3)]
    proposals = adapter.propose(views)
    outcomes = []
    for key, proposal in enumerate(proposals):
        first = next((n for n, row in enumerate(answers) if row[key] in (1, 2)), None)
        assert list(proposal.tokens) == ([] if first is None else [first] * answers[first][key])
        count = data.draw(st.integers(0, len(proposal.tokens)))
        outcomes.append(Outcome(tuple(range(count)), 30, None, len(proposal.tokens) + 1))
    after = [
        view([1, 2, 3, *proposal.tokens[: len(outcome.accepted)], 30], key=key)
        for key, (proposal, outcome) in enumerate(zip(proposals, outcomes, strict=True))
    ]
    try:
        adapter.observe(after, outcomes)
    except ProposalError:
        assert any(self_told.refused for one in inner for _, self_told in one.told)
    for number, one in enumerate(inner):
        for key, told in one.told:
            if told.refused is None:
                assert told == outcomes[key]
                assert answers[number][key] != "bad"
                assert list(proposals[key].tokens) == [number] * (answers[number][key] or 0)
            else:
                assert answers[number][key] == "bad" and told.accepted == ()
