"""What inner adapters need, see and are told, whatever combinator they are in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from adapter_views import target
from hypothesis import given
from hypothesis import strategies as st

from specla.adapters.adaptive.adapter import AdaptiveAdapter
from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.adapters.combinator import Combinator
from specla.adapters.fallback import FallbackAdapter
from specla.core.proposal import Proposal, ReadOnly, SequenceView
from specla.errors import OptionError, ProposalError

LAYERS = 6


class Looking(Adapter):
    """Looks at what it declared, wherever it is asked."""

    def __init__(self, needs: Needs) -> None:
        super().__init__()
        self.wanted = needs
        self.target: TargetInfo | None = None
        self.seen: list[Any] = []

    def needs(self) -> Needs:
        return self.wanted

    def bind(self, target: TargetInfo) -> None:
        self.target = target

    def open(self, view: SequenceView) -> None:
        self._look(view)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        for view in views:
            self._look(view)
        return [Proposal() for _ in views]

    def close(self, view: SequenceView) -> None:
        self._look(view)

    def _look(self, view: SequenceView) -> None:
        if self.wanted.features:
            self.seen.append(np.array(view.features(0, 2)))


def features_of(layers: Sequence[int]) -> Any:
    """Hidden states that tell their position and layer."""

    def features(start: int, stop: int) -> np.ndarray:
        rows = np.arange(start, stop)[:, None] * 100 + np.array(layers, dtype=int)[None, :]
        return np.repeat(rows[:, :, None], 3, axis=2)

    return features


def info(layers: tuple[int, ...]) -> TargetInfo:
    whole = replace(target(40), features=layers, embed=len, lm_head=len)
    return replace(whole, parts="parts")  # type: ignore[arg-type]


def seen_by(layers: tuple[int, ...], key: int = 0) -> SequenceView:
    return SequenceView(key, ReadOnly([1, 2, 3]), 3, 8, 8, features_of(layers))


needs = st.builds(
    Needs,
    features=st.lists(st.integers(0, LAYERS - 1), unique=True, max_size=4).map(tuple),
    embeddings=st.booleans(),
    lm_head=st.booleans(),
    parts=st.booleans(),
)


@given(st.lists(needs, min_size=1, max_size=4), st.booleans(), st.permutations(range(LAYERS)))
def test_everybody_gets_what_he_asked_for_and_no_more(
    wanted: list[Needs], nested: bool, captured: list[int]
) -> None:
    inner = [Looking(one) for one in wanted]
    adapter: Combinator = FallbackAdapter(None, inner)
    if nested:
        adapter = AdaptiveAdapter(None, [FallbackAdapter(None, [adapter, Looking(Needs((0,)))])])
    union = adapter.needs()
    assert set(union.features) >= {layer for one in wanted for layer in one.features}
    assert len(set(union.features)) == len(union.features)
    assert list(union.features) == list(adapter.needs().features)
    # the target may capture more, and in any order
    layers = tuple(captured)
    adapter.bind(info(layers))
    adapter.open(seen_by(layers))
    adapter.propose([seen_by(layers)])
    adapter.propose([seen_by(layers)])
    adapter.close(seen_by(layers))
    for one in inner:
        assert one.target is not None
        assert one.target.features == one.wanted.features
        assert (one.target.embed is not None) == one.wanted.embeddings
        assert (one.target.lm_head is not None) == one.wanted.lm_head
        assert (one.target.parts is not None) == one.wanted.parts
        expected = features_of(one.wanted.features)(0, 2)
        assert len(one.seen) >= 2 * bool(one.wanted.features)
        for found in one.seen:
            np.testing.assert_array_equal(found, expected)


def test_layers_are_united_in_the_order_of_the_adapters() -> None:
    adapter = FallbackAdapter(None, [Looking(Needs((5, 1))), Looking(Needs((3, 1, 0)))])
    assert adapter.needs().features == (5, 1, 3, 0)


def test_the_only_adapter_gets_the_very_array() -> None:
    arrays: list[Any] = []

    class Keeping(Looking):
        def _look(self, view: SequenceView) -> None:
            arrays.append(view.features(0, 2))

    kept = features_of((1, 2))(0, 2)
    adapter = FallbackAdapter(None, [Keeping(Needs((1, 2)))])
    adapter.bind(info((1, 2)))
    adapter.open(replace(seen_by((1, 2)), features=lambda start, stop: kept))
    assert arrays[0] is kept


def test_an_adapter_without_layers_sees_none() -> None:
    class Curious(Looking):
        def _look(self, view: SequenceView) -> None:
            view.features(0, 1)

    adapter = FallbackAdapter(None, [Curious(Needs()), Looking(Needs((2,)))], ["curious", "b"])
    adapter.bind(info((2,)))
    with pytest.raises(ProposalError, match=r"'curious' failed in open.*features\(0, 1\)"):
        adapter.open(seen_by((2,)))
    assert len(adapter.inner[1].seen) == 1, "the other one was told all the same"  # type: ignore[attr-defined]


def test_an_adapter_that_changes_its_layers_is_refused() -> None:
    moody = Looking(Needs((1,)))
    adapter = AdaptiveAdapter(None, [moody], ["moody"])
    assert adapter.needs().features == (1,)
    moody.wanted = Needs((4,))
    with pytest.raises(OptionError, match=r"'moody' needs features of layers \[4\]"):
        adapter.bind(info((1,)))


def test_an_inner_adapter_that_does_not_fit_is_named() -> None:
    class Picky(Looking):
        def bind(self, target: TargetInfo) -> None:
            raise ValueError("wrong\nmodel")

    adapter = FallbackAdapter(None, [Looking(Needs()), Picky(Needs())], ["a", "picky"])
    with pytest.raises(OptionError, match="'picky' failed in bind: ValueError: wrong model"):
        adapter.bind(target(9))


def test_one_that_needs_chance_or_time_makes_the_whole_so() -> None:
    class Dicing(Looking):
        deterministic = False

    sure = FallbackAdapter(None, [Looking(Needs())])
    assert sure.deterministic
    assert not FallbackAdapter(None, [sure, FallbackAdapter(None, [Dicing(Needs())])]).deterministic
    assert FallbackAdapter.deterministic
    assert not AdaptiveAdapter(None, [sure]).deterministic


def test_the_view_given_is_out_of_reach() -> None:
    class Grasping(Looking):
        def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
            for view in views:
                object.__setattr__(view, "budget", 1000)
            return [Proposal(list(range(30)), [-1] * 30) for _ in views]

    view = seen_by(())
    adapter = FallbackAdapter(None, [Grasping(Needs())])
    assert adapter.propose([view]) == [Proposal()]
    assert view.budget == 8
