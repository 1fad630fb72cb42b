"""The adaptive adapter in simulated worlds, where the best choice is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from adapter_views import target, view
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_world import Clock, SimulatedDraft, World, best_fixed, simulate

from specla.adapters.adaptive.adapter import AdaptiveAdapter, AdaptiveOptions
from specla.adapters.adaptive.measured import START
from specla.adapters.base import Adapter, create_adapter
from specla.core.proposal import Outcome, Proposal, SequenceView, to_tree
from specla.errors import ProposalError

MS = 1e-3


def linear(slope: float) -> Any:
    return lambda rows: MS * (1 + slope * (rows - 1))


def honest(p: float, position: int) -> float:
    return p


def wrong(p: float, position: int) -> float:
    return 0.0


def overconfident(p: float, position: int) -> float:
    return p * p


CALL = (0.2 * MS, 0.0)

WORLDS = {
    "cheap verify": World(linear(0.02), honest, CALL),
    "middling verify": World(linear(0.12), honest, CALL),
    "expensive verify": World(linear(0.35), honest, CALL),
    "expensive and overconfident": World(linear(0.35), overconfident, (0.3 * MS, 0.0)),
    "rows in blocks of eight": World(lambda n: MS * (1 + 0.4 * ((n - 1) // 8)), honest, CALL),
    "useless draft": World(linear(0.25), wrong, (0.3 * MS, 0.0)),
    "useless draft, cheap": World(linear(0.05), wrong, (0.02 * MS, 0.0)),
    "draft token by token": World(linear(0.12), honest, (0.0, 0.15 * MS), top=(0.8,)),
    "draft level by level": World(linear(0.3), honest, (0.1 * MS, 0.0), depth_seconds=0.08 * MS),
    "draft that seldom speaks": World(linear(0.12), honest, (0.01 * MS, 0.0), silent=0.9),
    "without probabilities": World(linear(0.12), honest, CALL, stated=False),
    "chain without probabilities": World(linear(0.12), honest, CALL, top=(0.8,), stated=False),
    "noisy clock": World(linear(0.12), honest, CALL, noise=0.3, spike=0.05),
}
CHOICES = (0, 1, 2, 3, 4, 6, 11, 16, 22)


def mean_seconds(world: World, count: int, seeds: Sequence[int]) -> float:
    total = 0.0
    for seed in seeds:
        clock = Clock()
        draft = SimulatedDraft(world, clock, seed)
        adapter = AdaptiveAdapter(None, [draft], clock=clock)
        total += simulate(adapter, draft, count, seed=seed).seconds
    return total / len(seeds)


@pytest.mark.parametrize("world", WORLDS.values(), ids=WORLDS.keys())
def test_regret_is_small(world: World) -> None:
    seeds = range(3)
    best = best_fixed(world, 800, seeds, CHOICES)
    assert mean_seconds(world, 800, seeds) < 1.1 * best


@pytest.mark.parametrize(
    "name", ["cheap verify", "middling verify", "expensive verify", "useless draft"]
)
def test_a_short_text_is_enough_to_learn(name: str) -> None:
    seeds = range(12)
    best = best_fixed(WORLDS[name], 128, seeds, CHOICES)
    assert mean_seconds(WORLDS[name], 128, seeds) < 1.13 * best


def test_a_changing_world_is_followed() -> None:
    """Every 200 tokens the draft becomes useless, or right again."""
    good = WORLDS["middling verify"]
    world = replace(good, truth=lambda p, i: p if (i // 200) % 2 else 0.0)
    seeds = range(3)
    # somebody who knows when to stop
    oracle = best_fixed(good, 500, seeds, CHOICES) + best_fixed(good, 500, seeds, (0,))
    found = mean_seconds(world, 1000, seeds)
    assert found < 1.2 * oracle
    assert found < 0.95 * best_fixed(world, 1000, seeds, CHOICES)


def test_within_eight_rounds_it_does_what_pays() -> None:
    speculated = {}
    for name in ("cheap verify", "useless draft"):
        clock = Clock()
        draft = SimulatedDraft(replace(WORLDS[name], noise=0.0, spike=0.0), clock, 1)
        run = simulate(AdaptiveAdapter(None, [draft], clock=clock), draft, 400)
        assert run.sizes[0] == 0 and run.sizes[1] == START[1]
        speculated[name] = sum(size > 0 for size in run.sizes[8:]) / len(run.sizes[8:])
    assert speculated["cheap verify"] > 0.9
    assert speculated["useless draft"] < 0.1


def test_a_pause_does_not_ask_the_draft() -> None:
    clock = Clock()
    draft = SimulatedDraft(WORLDS["useless draft"], clock, 3)
    adapter = AdaptiveAdapter(None, [draft], clock=clock)
    run = simulate(adapter, draft, 600)
    assert draft.calls < 0.08 * run.rounds
    # and only those calls were told
    assert len(draft.told) == draft.calls
    counts = adapter.report()["rounds"]
    # the last round has no room for candidates, so nobody is asked for a decision
    assert counts["plain"] + counts["drafted"] == run.rounds - 1
    assert counts["drafted"] == draft.calls
    assert 1 <= counts["probes"] <= draft.calls


def test_a_draft_that_costs_nothing_is_always_asked() -> None:
    clock = Clock()
    draft = SimulatedDraft(WORLDS["draft that seldom speaks"], clock, 3)
    run = simulate(AdaptiveAdapter(None, [draft], clock=clock), draft, 300)
    assert draft.calls > 0.85 * run.rounds


def test_a_draft_that_takes_very_long_is_asked_seldom() -> None:
    clock = Clock()
    draft = SimulatedDraft(World(linear(0.1), honest, (20 * MS, 0.0)), clock, 0)
    run = simulate(AdaptiveAdapter(None, [draft], clock=clock), draft, 1000)
    assert draft.calls <= 9
    assert run.seconds < 1.25 * MS * 1.05 * 1000


def test_of_a_draft_that_goes_token_by_token_few_are_asked() -> None:
    asked: list[int] = []

    class Counting(SimulatedDraft):
        def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
            asked.append(views[0].budget)
            return super().propose(views)

    for per_candidate, few in ((0.15 * MS, True), (0.0, False)):
        asked.clear()
        clock = Clock()
        world = World(linear(0.12), honest, (0.1 * MS, per_candidate), top=(0.8,))
        draft = Counting(world, clock, 0)
        simulate(AdaptiveAdapter(None, [draft], clock=clock), draft, 300)
        late = asked[20:-8]
        assert (sum(late) / len(late) < 7) == few


def test_of_a_draft_that_goes_level_by_level_few_levels_are_asked() -> None:
    depths: list[int] = []

    class Counting(SimulatedDraft):
        def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
            depths.append(views[0].max_depth)
            return super().propose(views)

    for per_level, few in ((0.2 * MS, True), (0.0, False)):
        depths.clear()
        clock = Clock()
        world = World(linear(0.05), honest, (0.2 * MS, 0.0), depth_seconds=per_level)
        draft = Counting(world, clock, 0)
        simulate(AdaptiveAdapter(None, [draft], clock=clock), draft, 300)
        late = depths[15:-8]
        assert (sum(late) / len(late) < 6) == few, sum(late) / len(late)


def test_equal_outcomes_and_clocks_give_equal_decisions() -> None:
    runs = []
    for _ in range(2):
        clock = Clock()
        draft = SimulatedDraft(WORLDS["middling verify"], clock, 5)
        adapter = AdaptiveAdapter(None, [draft], clock=clock)
        runs.append((simulate(adapter, draft, 300, seed=5), adapter.report()))
    assert runs[0] == runs[1]
    assert not AdaptiveAdapter.deterministic


def test_what_was_measured_is_kept_for_the_next_sequence_of_the_same_target() -> None:
    clock = Clock()
    draft = SimulatedDraft(WORLDS["cheap verify"], clock, 5)
    adapter = AdaptiveAdapter(None, [draft], clock=clock)
    adapter.bind(target(30000))
    simulate(adapter, draft, 200)
    adapter.bind(target(30000))
    first = simulate(adapter, draft, 100, key=1).sizes
    assert first[0] > 0, "no need to begin with plain decoding"
    adapter.bind(replace(target(30000), n_layers=5))
    assert simulate(adapter, draft, 100, key=2).sizes[0] == 0


def test_the_report_can_be_written_as_json() -> None:
    clock = Clock()
    draft = SimulatedDraft(WORLDS["cheap verify"], clock, 5)
    adapter = AdaptiveAdapter(None, [draft], ["simulated"], clock=clock)
    json.dumps(adapter.report())
    simulate(adapter, draft, 100)
    report = adapter.report()
    json.dumps(report)
    assert report["inner"] == [{"adapter": "simulated"}]
    assert report["pausing"] is False
    assert report["candidates"] > 2 and report["expected_tokens"] > 1.5
    assert set(report["step_ms_by_rows"]) >= {1, 7}


# -- what is offered and told ----------------------------------------------------------------------


class Scripted(Adapter):
    """Proposes what it is given, and keeps what it is told."""

    def __init__(self, answer: Any = None) -> None:
        super().__init__()
        self.answer = answer
        self.told: list[Outcome] = []

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        if isinstance(self.answer, Exception):
            raise self.answer
        answers = self.answer if isinstance(self.answer, list) else [self.answer] * len(views)
        return [
            Proposal(
                answer.tokens[: seen.budget],
                answer.parents[: seen.budget],
                answer.log_probs and answer.log_probs[: seen.budget],
            )
            if isinstance(answer, Proposal)
            else answer
            for seen, answer in zip(views, answers, strict=True)
        ]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes


trees = st.lists(st.tuples(st.integers(-1, 20), st.floats(-5.0, 0.0)), min_size=0, max_size=20).map(
    lambda drawn: Proposal(
        list(range(len(drawn))),
        [min(parent, i - 1) for i, (parent, _) in enumerate(drawn)],
        [log_prob for _, log_prob in drawn],
    )
)


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(
            trees,
            st.booleans(),
            st.integers(0, 22),
            st.integers(1, 6),
            st.floats(0, 1),
            st.floats(0, 0.1),
            st.sampled_from([0, 0, 0, 1, 2, 3]),
        ),
        max_size=40,
    )
)
def test_whatever_happens_a_valid_part_is_offered_and_told(
    rounds: list[tuple[Proposal, bool, int, int, float, float, int]],
) -> None:
    """Any trees, budgets, depths, times, failures and accepted paths."""
    clock = Clock()
    inner = Scripted()
    adapter = AdaptiveAdapter(None, [inner], ["inner"], clock=clock)
    text = [1, 2, 3]
    adapter.open(view(text))
    for full, stated, budget, depth, accepting, seconds, trouble in rounds:
        answer = full if stated else Proposal(full.tokens, full.parents)
        inner.answer = [answer, RuntimeError("no"), [7], Proposal([1], [3])][trouble]
        inner.told.clear()
        seen = view(text, budget=budget, max_depth=depth)
        (offered,) = adapter.propose([seen])
        tree = to_tree(offered, seen, vocab_size=100, adapter="adaptive")
        assert max(tree.depths) <= depth and len(tree) <= budget + 1
        # paths are those of the full tree
        tokens = [*offered.tokens]
        for token, parent in zip(offered.tokens, offered.parents, strict=True):
            up = full.parents[token]
            assert (tokens[parent] if parent >= 0 else -1) == up
        node, accepted = 0, []
        while tree.children[node] and len(accepted) < accepting * 6:
            node = tree.children[node][0]
            accepted.append(node - 1)
        clock.now += seconds
        text = [*text, *(tokens[i] for i in accepted), 50]
        outcome = Outcome(tuple(accepted), 50, None, len(tree), seconds)
        failed = False
        try:
            adapter.observe([view(text, budget=0, max_depth=0)], [outcome])
        except ProposalError as error:
            failed = True
            assert "'inner'" in str(error) and "\n" not in str(error)
        assert failed <= bool(trouble)
        for told in inner.told:
            assert list(told.accepted) == [tokens[i] for i in accepted]
            assert (told.refused is not None) == failed
    json.dumps(adapter.report())


def test_the_inner_adapter_is_told_in_its_own_numbers() -> None:
    # the likely path is the second one: candidates 1, 3 and 5
    likely, unlikely = -0.05, -4.0
    full = Proposal(
        [10, 11, 12, 13, 14, 15],
        [-1, -1, 0, 1, 2, 3],
        [unlikely, likely, unlikely, likely, unlikely, likely],
    )
    inner = Scripted(full)
    clock = Clock()
    adapter = AdaptiveAdapter(None, [inner], clock=clock)
    text = [1]
    for _ in range(20):
        (offered,) = adapter.propose([view(text)])
        text = [*text, *offered.tokens, 0]
        rows = len(offered.tokens) + 1
        right = tuple(i for i, token in enumerate(offered.tokens) if token in (11, 13, 15))
        adapter.observe([view(text)], [Outcome(right, 0, None, rows, 0.001 * (1 + 0.1 * rows))])
    assert list(offered.tokens) == [11, 13, 15]
    assert inner.told[-1].accepted == (1, 3, 5)


def test_a_refusal_reaches_the_inner_adapter_and_teaches_nothing() -> None:
    inner = Scripted(Proposal.chain([5, 6], [-0.1, -0.1]))
    adapter = AdaptiveAdapter(None, [inner], clock=Clock())
    for _ in range(3):
        adapter.propose([view([1])])
        adapter.observe([view([1, 2])], [Outcome((), 2, "because", 1, 0.001)])
    assert {told.refused for told in inner.told} == {"because"}
    assert set(adapter.report()["accepted_over_stated"].values()) == {1.0}


def test_a_draft_that_always_fails_is_hardly_asked() -> None:
    clock = Clock()

    class Failing(Scripted):
        calls = 0

        def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
            Failing.calls += 1
            clock.now += 0.001
            raise RuntimeError("no")

    adapter = AdaptiveAdapter(None, [Failing()], clock=clock)
    failures = 0
    for _ in range(300):
        assert adapter.propose([view([1])]) == [Proposal()]
        try:
            adapter.observe([view([1, 2])], [Outcome((), 2, None, 1, 0.001)])
        except ProposalError:
            failures += 1
    assert failures == Failing.calls < 20


def test_without_times_it_goes_by_the_prior() -> None:
    inner = Scripted(Proposal.chain([5, 6, 7], [-0.1] * 3))
    adapter = AdaptiveAdapter(None, [inner], clock=Clock())
    for _ in range(12):
        (offered,) = adapter.propose([view([1])])
        accepted = tuple(range(len(offered.tokens)))
        adapter.observe([view([1, *offered.tokens, 2])], [Outcome(accepted, 2)])
    assert list(offered.tokens) == [5, 6, 7]


def test_a_batch_is_decided_one_by_one() -> None:
    inner = Scripted(Proposal.chain([5, 6], [-0.1] * 2))
    adapter = AdaptiveAdapter(None, [inner], clock=Clock())
    views = [view([1], key=key) for key in range(3)]
    for _ in range(4):
        offered = adapter.propose(views)
        assert len(offered) == 3
        outcomes = [Outcome((), 2, None, len(one.tokens) + 1, 0.001) for one in offered]
        adapter.observe([view([1, 2], key=key) for key in range(3)], outcomes)
    assert set(adapter._courses) == {0, 1, 2}
    for one in views:
        adapter.close(one)
    assert not adapter._courses


def test_options() -> None:
    adapter = create_adapter("adaptive(none)", {"margin": "0.1", "probe": "9", "share": "0.05"})
    assert adapter.options == AdaptiveOptions(0.1, 0.05, 9)
