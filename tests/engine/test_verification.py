"""Every way to verify and roll back: the same text, logits, state and features; and what each of
them may not do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from engine.test_engine import GREEDY, PROMPT, SAMPLED, Features, Oracle
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain import plain_run
from support.tiny import tiny_target

from specla.check import Trace, compare, plain_decode
from specla.core.sampling import Sampler
from specla.core.topology import Tree
from specla.engine import Request, Session, Stop
from specla.errors import SpeclaError
from specla.models.qwen35.target import Qwen35Target
from specla.verification import (
    ReplayVerifier,
    SequentialVerifier,
    TreeVerifier,
    UnfusedTreeVerifier,
    Verifier,
)

ALL = [TreeVerifier, UnfusedTreeVerifier, ReplayVerifier, SequentialVerifier]
TARGET: Qwen35Target

each = pytest.mark.parametrize("verifier", ALL, ids=lambda kind: kind.__name__)


@pytest.fixture(autouse=True, scope="module")
def _a_target_on_each_backend(backend_name: str) -> None:
    global TARGET
    # a chunk shorter than an accepted path: a replay takes several prefills
    TARGET = tiny_target(context=64, max_nodes=33, features=(0, 2), chunk=4)


def session(verifier: type[Verifier], truth: Sequence[int], side: int = 1) -> Session:
    return Session(TARGET, Oracle(truth, side), PROMPT, verifier=verifier)


def plain(count: int, sampler: Sampler = GREEDY) -> tuple[list[int], dict[str, np.ndarray]]:
    trace, state = plain_run(TARGET, PROMPT, count, sampler)
    return list(trace.tokens), state


def assert_plain(opened: Session, count: int, sampler: Sampler = GREEDY) -> None:
    tokens, state = plain(count, sampler)
    assert list(opened.tokens) == [*PROMPT, *tokens]
    ours = opened.target.state_arrays(opened.sequence)
    for name, array in state.items():
        assert ours[name].tobytes() == array.tobytes(), name


@each
@settings(max_examples=12)
@given(
    budgets=st.lists(st.integers(0, 32), min_size=1, max_size=4),
    side=st.integers(0, 2),
    sampled=st.booleans(),
)
def test_the_same_text_logits_and_state(
    verifier: type[Verifier], budgets: list[int], side: int, sampled: bool
) -> None:
    sampler = SAMPLED if sampled else GREEDY
    wanted, state = plain_run(TARGET, PROMPT, 5 * len(budgets), sampler)
    trace = Trace()
    with session(verifier, wanted.tokens, side) as opened:
        for budget in budgets:
            request = Request(5, sampler, budget=budget, on_logits=trace.on_logits)
            trace.tokens += [event.token for event in opened.generate(request)]
        compare(trace, wanted, TARGET.state_arrays(opened.sequence), state, len(PROMPT))


@each
@pytest.mark.parametrize("how", ["stop rule", "close", "cancel"])
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_a_stop_in_mid_path(verifier: type[Verifier], n: int, how: str) -> None:
    truth, _ = plain(24)
    with session(verifier, truth) as opened:
        seen: list[int] = []
        rule = (lambda token: len(seen) + 1 == n) if how == "stop rule" else None
        running = opened.generate(Request(12, GREEDY, budget=32, stop_rule=rule))
        for event in running:
            seen.append(event.token)
            if len(seen) == n and how == "cancel":
                opened.cancel()
            if len(seen) == n and how == "close":
                break
        running.close()  # type: ignore[attr-defined]
        assert seen == truth[:n]
        wanted = {"stop rule": Stop.STOP_RULE, "close": None, "cancel": Stop.CANCELLED}[how]
        assert opened.stop is wanted
        assert_plain(opened, n)
        assert [e.token for e in opened.generate(Request(9, GREEDY))] == truth[n : n + 9]
        opened.extend([3, 4])
        assert opened.sequence.length == len(PROMPT) + n + 9 + 1


@each
@pytest.mark.parametrize("side", [0, 2])
def test_features_follow_the_accepted_path(verifier: type[Verifier], side: int) -> None:
    truth, _ = plain(16)
    adapter = Features(truth, side)
    with Session(TARGET, adapter, PROMPT, verifier=verifier) as opened:
        list(opened.generate(Request(16, GREEDY, budget=20)))
        tokens = list(opened.tokens)[:-1]
    sequence = TARGET.open()
    for token in tokens:
        TARGET.prefill([(sequence, [token])])
    wanted = np.array(TARGET.features(sequence, 0, len(tokens)))
    TARGET.close(sequence)
    assert adapter.last.tobytes() == wanted.tobytes()


@each
def test_the_context_can_be_filled(verifier: type[Verifier]) -> None:
    target = tiny_target(context=12, max_nodes=9, slots=1)
    wanted = plain_decode(target, PROMPT, 8, GREEDY)[0].tokens
    with Session(target, Oracle(wanted, 1), PROMPT, verifier=verifier) as opened:
        events = list(opened.generate(Request(100, GREEDY, budget=8)))
        assert [e.token for e in events] == wanted
        assert events[-1].stop is Stop.CONTEXT and opened.sequence.length == 12


@each
def test_interleaved_sessions(verifier: type[Verifier]) -> None:
    target = tiny_target(context=64, max_nodes=33, slots=2, chunk=4)
    truth = {prompt: plain_decode(target, prompt, 8, GREEDY)[0] for prompt in (PROMPT, (9, 9))}
    traces = {prompt: Trace() for prompt in truth}
    sessions = [Session(target, Oracle(truth[p].tokens, 1), p, verifier=verifier) for p in truth]
    running = [
        opened.generate(Request(8, GREEDY, budget=12, on_logits=traces[prompt].on_logits))
        for opened, prompt in zip(sessions, truth, strict=True)
    ]
    for _ in range(8):
        for generator in running:
            next(generator)
    for opened in sessions:
        opened.close()
    assert all(traces[prompt].digests == truth[prompt].digests for prompt in truth)
    pool = target.store.pages.pool
    assert pool.free == pool.n_pages, "pages leaked"


def test_what_is_reported() -> None:
    """Sequential rounds count the rows that ran; all others the whole tree."""
    truth, _ = plain(12)
    rows = {}
    for verifier in ALL:
        adapter = Oracle(truth, 2)
        with Session(TARGET, adapter, PROMPT, verifier=verifier) as opened:
            list(opened.generate(Request(4, GREEDY, budget=9)))
            rows[verifier] = opened.stats.rows
        (outcome,) = adapter.outcomes
        assert (outcome.accepted, outcome.bonus) == ((2, 5, 8), truth[3])
        assert outcome.rows == rows[verifier] and outcome.seconds > 0
    assert rows == {
        TreeVerifier: 10, UnfusedTreeVerifier: 10, ReplayVerifier: 10, SequentialVerifier: 4
    }  # fmt: skip


class Calls:
    """The target's operations, written down on their way."""

    def __init__(self, target: Qwen35Target, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log: list[tuple[str, Any]] = []
        for name in ("verify", "commit", "flush", "prefill", "snapshot", "restore", "discard"):
            monkeypatch.setattr(target, name, self._logged(name, getattr(target, name)))

    def _logged(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **keywords: Any) -> Any:
            rows = 0
            if name in ("verify", "prefill"):
                rows = sum(len(tokens) for _, tokens in arguments[0])
            self.log.append((name, rows))
            return operation(*arguments, **keywords)

        return call


@pytest.mark.parametrize(
    ("verifier", "wanted"),
    [
        (TreeVerifier, [("verify", 13), ("commit", 0)]),
        (UnfusedTreeVerifier, [("verify", 13), ("commit", 0), ("flush", 0)]),
        (
            ReplayVerifier,
            [("snapshot", 0), ("verify", 13), ("restore", 0), ("prefill", 4), ("prefill", 3)],
        ),
        (SequentialVerifier, [("verify", 1), ("commit", 0)] * 7),
    ],
)
def test_what_a_round_does(
    verifier: type[Verifier], wanted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    truth, _ = plain(12)
    with session(verifier, truth) as opened:
        calls = Calls(TARGET, monkeypatch)
        list(opened.generate(Request(7, GREEDY, budget=32)))
        # six candidates deep, two wide, and no rollback but the one of the strategy
        assert calls.log == wanted
        monkeypatch.undo()


@each
def test_a_choice_that_fails_leaves_a_session_that_can_go_on(verifier: type[Verifier]) -> None:
    calls: list[int] = []

    def moody(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        calls.append(len(history))
        if len(calls) == 4:
            raise SpeclaError("not this one")
        return logits

    truth, _ = plain(24)
    with session(verifier, truth) as opened:
        request = Request(9, Sampler(GREEDY.params, [moody]), budget=32)
        seen = []
        with pytest.raises(SpeclaError, match="not this one"):
            seen += [event.token for event in opened.generate(request)]
        done = len(opened.tokens) - len(PROMPT)
        # what was emitted is kept: one by one three tokens, otherwise none of the round
        assert done == (3 if verifier is SequentialVerifier else 0)
        assert_plain(opened, done)
        assert [e.token for e in opened.generate(Request(6, GREEDY))] == truth[done : done + 6]


def test_a_sequential_round_gives_the_candidates_before_as_history() -> None:
    seen: list[list[int]] = []

    def watch(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        seen.append(list(history))
        return logits

    truth, _ = plain(8)
    with session(SequentialVerifier, truth) as opened:
        list(opened.generate(Request(5, Sampler(GREEDY.params, [watch]), budget=32)))
    assert seen == [[*PROMPT, *truth[:n]] for n in range(5)]


def test_a_lone_tree_is_all_a_sequential_round_ever_verifies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    truth, _ = plain(20)
    seen: list[int] = []
    verify = TARGET.verify

    def watched(items: Sequence[tuple[Any, Tree]]) -> Any:
        seen.extend(len(tree) for _, tree in items)
        return verify(items)

    monkeypatch.setattr(TARGET, "verify", watched)
    with session(SequentialVerifier, truth, 2) as opened:
        list(opened.generate(Request(20, GREEDY, budget=32)))
        assert opened.stats.mean_accept_length > 2
    assert seen == [1] * 20
