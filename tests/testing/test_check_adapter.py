"""The adapter kit: sound adapters pass; each kind of broken one is caught by the check named."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from cli.cli_model import write_model

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.adapters.ngram import NgramAdapter
from specla.backends import create_backend
from specla.backends.base import Backend
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.errors import OptionError
from specla.models.load import ModelFile, open_model
from specla.testing import ConformanceError, adapter_checks, check_adapter

PROMPTS = ([5, 6, 7, 5, 6, 8, 5, 9, 5, 6, 7, 5], [9, 9, 8, 5, 9, 8, 6, 9], [7, 8] * 5 + [9, 7, 8])
"""Texts in which tokens are followed by one and by several others."""
MODEL: ModelFile


@pytest.fixture(autouse=True, scope="module")
def _a_tiny_model(tmp_path_factory: pytest.TempPathFactory) -> None:
    global MODEL
    path = tmp_path_factory.mktemp("kit") / "tiny.gguf"
    MODEL = open_model(write_model(path, {"qwen35.context_length": 512}))


@cache
def backend() -> Backend:
    return create_backend("auto", threads=1)


def check(factory: Any, **options: Any) -> Any:
    settings: dict[str, Any] = {"model": MODEL, "prompts": PROMPTS, "backend": backend()}
    return check_adapter(factory, **(settings | {"tokens": 12} | options))


class Follow(Adapter):
    """Sound, with state per sequence: proposes what followed each token last, as a tree."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.following: dict[int, dict[int, list[int]]] = {}
        self.known: dict[int, int] = {}

    def open(self, view: SequenceView) -> None:
        self.following[view.key], self.known[view.key] = {}, 1
        self._learn(view)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self._tree(view) for view in views]

    def _tree(self, view: SequenceView) -> Proposal:
        self._learn(view)
        tokens: list[int] = []
        parents: list[int] = []
        waiting = [(-1, view.root, 0)]
        while waiting and len(tokens) < view.budget:
            parent, token, depth = waiting.pop(0)
            for child in self.following[view.key].get(token, [])[: view.budget - len(tokens)]:
                tokens.append(child)
                parents.append(parent)
                if depth + 1 < view.max_depth:
                    waiting.append((len(tokens) - 1, child, depth + 1))
        return Proposal(tokens, parents)

    def _learn(self, view: SequenceView) -> None:
        for i in range(self.known[view.key], len(view.tokens)):
            found = self.following[view.key].setdefault(view.tokens[i - 1], [])
            if view.tokens[i] not in found:
                found.append(view.tokens[i])
        self.known[view.key] = len(view.tokens)

    def close(self, view: SequenceView) -> None:
        del self.following[view.key], self.known[view.key]


def test_a_sound_adapter_passes() -> None:
    report = check(Follow)
    assert [result.name for result in report.results] == adapter_checks.names()
    assert [result.name for result in report.results if result.skipped] == ["inputs"]
    assert report.calls > 100 and len(report.figures) == 6
    text = report.text()
    assert "adapter Follow on backend" in text and "accept length" in text


def test_the_bundled_model_is_the_default() -> None:
    report = check_adapter("ngram", only="accept_length", tokens=12)
    assert any(figures.accept_length > 1 for figures in report.figures)


def test_names_factories_and_options() -> None:
    only = ["validation", "lossless"]
    assert check("ngram", only=only, options={"min_match": "1"}).name == "ngram"
    assert check(lambda: NgramAdapter(), only=only).name == "NgramAdapter"
    with pytest.raises(OptionError, match="unknown adapter 'ngrams'"):
        check("ngrams", only="protocol.types")
    with pytest.raises(OptionError, match="unknown adapter check 'losless'; known: proto"):
        check(Follow, skip="losless")
    with pytest.raises(OptionError, match="2 to 128 tokens"):
        check(Follow, prompts=["a"])


class Featured(Follow):
    """Reads features; with them it decides nothing."""

    def needs(self) -> Needs:
        return Needs(features=(0, 1))

    def _tree(self, view: SequenceView) -> Proposal:
        assert view.features(0, len(view.tokens) - 1).shape[1] == 2
        return super()._tree(view)


def test_features_come_with_the_views() -> None:
    report = check(Featured, only=["inputs", "state.batches", "rollback.mixed"])
    assert not any(result.skipped for result in report.results)


# -- broken ones ---------------------------------------------------------------------------------


class NotAnAdapter:
    deterministic = True


class MoodyNeeds(Follow):
    def needs(self) -> Needs:
        return Needs(features=(len(self.known),))


class NeedsAnObserve(Follow):
    """Takes it that a proposal is always followed by an outcome."""

    waiting = False

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        if self.waiting:
            raise RuntimeError("no outcome yet")
        self.waiting = True
        return super().propose(views)

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.waiting = False


class NeedsAProposal(Follow):
    """Looks up the proposal that an outcome belongs to; there may be none."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.last: dict[int, Proposal] = {}

    def _tree(self, view: SequenceView) -> Proposal:
        self.last[view.key] = super()._tree(view)
        return self.last[view.key]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        for view in views:
            self.last.pop(view.key)


class OverBudget(Follow):
    def _tree(self, view: SequenceView) -> Proposal:
        return Proposal.chain([5, 6, 7][: max(view.budget, 1)])


class DeepOnly(Follow):
    """Divides by max_depth, which may be 0."""

    def _tree(self, view: SequenceView) -> Proposal:
        width = view.budget // view.max_depth
        return Proposal(range(width), [-1] * width)


class Twins(Follow):
    def _tree(self, view: SequenceView) -> Proposal:
        return Proposal([9, 9][: view.budget], [-1, -1][: view.budget])


class OneForAll(Follow):
    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return super().propose(views[:1])


class Random(Follow):
    def _tree(self, view: SequenceView) -> Proposal:
        return Proposal.chain([random.randrange(100)][: view.budget])


class OneState(Follow):
    """Keeps one state for all sequences."""

    def open(self, view: SequenceView) -> None:
        self.known.setdefault(0, 0)
        super().open(self._one(view))

    def _tree(self, view: SequenceView) -> Proposal:
        return super()._tree(self._one(view))

    def close(self, view: SequenceView) -> None:
        pass

    @staticmethod
    def _one(view: SequenceView) -> SequenceView:
        return SequenceView(0, view.tokens, 1, view.budget, view.max_depth, view.features)


class Shuffled(Follow):
    """Answers in the order of keys, not of views."""

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        smallest = min(view.budget for view in views)
        ordered = sorted(views, key=lambda view: view.key)
        proposals = [self._tree(view) for view in ordered]
        return [
            Proposal(p.tokens[:smallest], p.parents[:smallest]) if len(views) > 1 else p
            for p in proposals
        ]


class Leftovers(Follow):
    """Forgets to forget."""

    def open(self, view: SequenceView) -> None:
        self.following.setdefault(view.key, {})
        self.known[view.key] = 1
        self._learn(view)

    def close(self, view: SequenceView) -> None:
        pass


class LearnsCandidates(Follow):
    """Takes its own guesses for text: what was rejected stays in its tables."""

    def _tree(self, view: SequenceView) -> Proposal:
        proposal = super()._tree(view)
        found = self.following[view.key]
        for token, parent in zip(proposal.tokens, proposal.parents, strict=True):
            before = view.root if parent < 0 else proposal.tokens[parent]
            found.setdefault(token, []).insert(0, before)
        return Proposal(proposal.tokens, proposal.parents)

    def _learn(self, view: SequenceView) -> None:
        super()._learn(view)
        for children in self.following[view.key].values():
            children[:] = list(dict.fromkeys(children))


class CountsOnObserve(Follow):
    """A cache that is rewound by the accept length, wrongly: siblings before the path count too."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.behind: set[int] = set()

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        for view, outcome in zip(views, outcomes, strict=True):
            if outcome.accepted and outcome.accepted != tuple(range(len(outcome.accepted))):
                self.behind.add(view.key)

    def _tree(self, view: SequenceView) -> Proposal:
        proposal = super()._tree(view)
        if view.key not in self.behind:
            return proposal
        return Proposal.chain(proposal.tokens[1:])


class Vandal(Featured):
    """Scales features in place: what others will read."""

    def _tree(self, view: SequenceView) -> Proposal:
        seen = view.features(0, len(view.tokens) - 1)
        seen *= np.float32(0.5)
        return super()._tree(view)


class Meddler(Follow):
    """Writes into the target's weights, which only `parts` gives away."""

    def needs(self) -> Needs:
        return Needs(parts=True)

    def bind(self, target: TargetInfo) -> None:
        assert target.parts is not None
        self.norm = target.parts.output_norm

    def _tree(self, view: SequenceView) -> Proposal:
        self.norm[:7] *= np.float32(-3)
        return super()._tree(view)


class Raises(Follow):
    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        raise KeyError("lost")


class ExitsLate(Follow):
    """Ends the program in a text longer than any of the hand-driven ones."""

    def _tree(self, view: SequenceView) -> Proposal:
        if len(view.tokens) - view.prompt_length > 8 and view.budget == 22:
            raise SystemExit(1)
        return super()._tree(view)


class Prompted(Follow):
    """Takes it that a text is its prompt and what it saw accepted: extend() brings other tokens."""

    def __init__(self, options: Any = None) -> None:
        super().__init__(options)
        self.length: dict[int, int] = {}

    def open(self, view: SequenceView) -> None:
        super().open(view)
        self.length[view.key] = len(view.tokens)

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        for view, outcome in zip(views, outcomes, strict=True):
            self.length[view.key] += len(outcome.accepted) + 1

    def _tree(self, view: SequenceView) -> Proposal:
        if self.length[view.key] != len(view.tokens):
            raise IndexError("the text has other tokens")
        return super()._tree(view)


BROKEN: dict[type, tuple[str, str, str]] = {
    # the check that runs, the check that the message names, a part of the message
    NotAnAdapter: ("protocol.types", "protocol.types", "Derive the class from Adapter"),
    MoodyNeeds: ("protocol.needs", "protocol.needs", "Derive needs() from the options"),
    NeedsAnObserve: ("protocol.hooks", "exceptions", "RuntimeError: no outcome yet"),
    NeedsAProposal: ("protocol.hooks", "exceptions", "expected observe to return; found KeyError"),
    OverBudget: ("validation", "validation", "more than 0 candidates, which is the budget"),
    DeepOnly: ("validation", "exceptions", "ZeroDivisionError"),
    Twins: ("validation", "validation", "siblings must differ"),
    OneForAll: ("state.batches", "state.batches", "a list of 2 proposals for 2 views"),
    Random: ("determinism", "determinism", "declare deterministic = False"),
    OneState: ("state.interleaved", "state.interleaved", "Keep state per view.key"),
    Shuffled: ("state.batches", "state.batches", "by position"),
    Leftovers: ("state.reopen", "state.reopen", "Drop everything"),
    LearnsCandidates: ("rollback.rejected", "rollback.rejected", "view.tokens is the truth"),
    CountsOnObserve: ("rollback.siblings", "rollback.siblings", "in round 1"),
    Vandal: ("inputs", "inputs", "Copy what view.features gives"),
    Meddler: ("lossless", "lossless", "writing into the target's arrays"),
    Raises: ("lossless", "exceptions", "KeyError: 'lost'"),
    ExitsLate: ("lossless", "exceptions", "SystemExit: 1"),
    Prompted: ("extend", "exceptions", "IndexError: the text has other tokens"),
}


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.__name__)
def test_a_broken_adapter_is_caught_by_name(broken: type) -> None:
    only, name, message = BROKEN[broken]
    with pytest.raises(ConformanceError) as caught:
        check(broken, only=only)
    assert caught.value.check == name and message in str(caught.value)
    assert caught.value.expected and caught.value.found and caught.value.remedy


def test_cancelled_rounds_are_tried() -> None:
    """One that can't bear it when an accepted run is cut short."""

    class Proud(Follow):
        def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
            for outcome in outcomes:
                if outcome.rows > 3 and not outcome.accepted:
                    raise ValueError("but it was right")

    with pytest.raises(ConformanceError, match="but it was right"):
        check(Proud, only="cancel")


def test_every_check_has_a_broken_adapter() -> None:
    tried = {only for only, _, _ in BROKEN.values()} | {"cancel"}
    untried = set(adapter_checks.names()) - tried
    assert untried == {"rollback.prefix", "rollback.mixed", "accept_length"}
    assert all(len(adapter_checks.contract(name)) > 30 for name in adapter_checks.names())


def test_chance_may_be_declared() -> None:
    class Honest(Random):
        deterministic = False

    report = check(Honest, skip=["lossless", "cancel", "extend", "accept_length"])
    skipped = {result.name: result.skipped for result in report.results}
    assert skipped["determinism"] == "the adapter declares deterministic = False"
    assert not skipped["rollback.mixed"], "it is still driven, and its trees are validated"


def test_an_adapter_that_proposes_nothing_has_shown_nothing() -> None:
    with pytest.raises(ConformanceError, match="empty proposals only"):
        check("none", only="validation")
    check("none", only="validation", require_proposals=False)


def hanging(release: threading.Event, where: str) -> Callable[[], Adapter]:
    class Hangs(Follow):
        def _tree(self, view: SequenceView) -> Proposal:
            if where == "proposal":  # an iterator whose next item never comes
                return Proposal((release.wait() for _ in range(2)), [-1])  # type: ignore[arg-type]
            release.wait()
            return super()._tree(view)

    return Hangs


@pytest.mark.parametrize("where", ["call", "proposal"])
@pytest.mark.parametrize("only", ["validation", "lossless"])
def test_a_hang_is_said_and_ends(where: str, only: str) -> None:
    release = threading.Event()
    try:
        with pytest.raises(ConformanceError, match=r"\[time\] expected propose to return within"):
            check(hanging(release, where), only=only, hang_seconds=0.2)
    finally:
        release.set()


def test_slow_calls_are_reported() -> None:
    report = check(Follow, only="validation", seconds_per_call=0.0)
    assert len(report.slow) == report.calls
    assert "slow, the slowest" in report.text()


def test_calls_can_be_made_directly() -> None:
    seen: set[int] = set()

    class Local(Follow):
        def _tree(self, view: SequenceView) -> Proposal:
            seen.add(threading.get_ident())
            return super()._tree(view)

    check(Local, only="validation", hang_seconds=None)
    assert seen == {threading.get_ident()}
    check(Local, only="validation")
    assert len(seen) == 2, "one thread for all calls"


def test_the_kit_needs_no_test_framework() -> None:
    code = (
        "import sys; sys.modules.update(dict.fromkeys(('pytest', 'hypothesis'))); "
        "import specla.testing as t; print(len(t.adapter_checks.names()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(done.stdout) == len(adapter_checks.names())


def test_an_interrupt_of_the_adapters_own_is_a_failure() -> None:
    class Interrupts(Follow):
        def _tree(self, view: SequenceView) -> Proposal:
            raise KeyboardInterrupt("mine")

    with pytest.raises(ConformanceError, match="KeyboardInterrupt: mine"):
        check(Interrupts, only="validation")
    with pytest.raises(KeyboardInterrupt):
        check(Interrupts, only="validation", hang_seconds=None)
