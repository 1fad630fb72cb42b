"""The decode loop on a tiny random model: stops, going on, hostile adapters, full contexts."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.plain import plain_run
from support.tiny import VOCAB, tiny_target

from specla.adapters.base import Adapter, Needs
from specla.adapters.none import NoneAdapter
from specla.check import Trace, compare, plain_decode
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session, Stop
from specla.errors import (
    CapacityError,
    LifecycleError,
    OptionError,
    SpeclaError,
    TopologyError,
)
from specla.models.qwen35.target import Qwen35Target

PROMPT = (3, 1, 4, 1, 5)
GREEDY = Sampler(SamplingParams())
SAMPLED = Sampler(SamplingParams(temperature=1.0, seed=7))
TARGET: Qwen35Target


@pytest.fixture(autouse=True, scope="module")
def _a_target_on_each_backend(backend_name: str) -> None:
    global TARGET
    TARGET = tiny_target(context=64, max_nodes=33, features=(0, 2))


def test_the_backend_is_the_one_asked_for(backend_name: str) -> None:
    assert TARGET.backend.name == backend_name


class Oracle(Adapter):
    """Proposes the true continuation among ``side`` wrong siblings; the right one comes last, so
    that acceptance must gather."""

    def __init__(self, truth: Sequence[int], side: int = 0) -> None:
        super().__init__()
        self.truth, self.side = list(truth), side
        self.outcomes: list[Outcome] = []

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self._tree(view) for view in views]

    def _tree(self, view: SequenceView) -> Proposal:
        done = len(view.tokens) - view.prompt_length
        tokens: list[int] = []
        parents: list[int] = []
        spine = -1
        for right in self.truth[done:]:
            if len(tokens) + self.side + 1 > view.budget:
                break
            for i in range(self.side):
                tokens.append((right + 1 + i) % VOCAB)
                parents.append(spine)
            tokens.append(right)
            parents.append(spine)
            spine = len(tokens) - 1
        return Proposal(tokens, parents)

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.outcomes += outcomes


def _truth(count: int, sampler: Sampler = GREEDY) -> list[int]:
    trace, _ = plain_run(TARGET, PROMPT, count, sampler)
    return list(trace.tokens)


def _assert_plain(session: Session, count: int, sampler: Sampler) -> None:
    """The session's text and state are those of plain decoding after ``count`` tokens."""
    trace, state = plain_run(TARGET, PROMPT, count, sampler)
    assert list(session.tokens) == [*PROMPT, *trace.tokens]
    ours = TARGET.state_arrays(session.sequence)
    for name, array in state.items():
        assert ours[name].tobytes() == array.tobytes(), name


def _cancel(session: Session, request: dict[str, Any], n: int, truth: list[int]) -> None:
    request["stop_rule"] = lambda token: session.cancel() if _count(session, n) else False


def _count(session: Session, n: int) -> bool:
    session.seen = getattr(session, "seen", 0) + 1  # type: ignore[attr-defined]
    return session.seen >= n  # type: ignore[attr-defined]


STOPS: dict[str, Callable[[Session, dict[str, Any], int, list[int]], None]] = {
    "limit": lambda s, r, n, t: r.update(max_tokens=n),
    "stop id": lambda s, r, n, t: r.update(stop_ids=frozenset({t[n - 1]})),
    "stop rule": lambda s, r, n, t: r.update(stop_rule=lambda token: _count(s, n)),
    "cancel": _cancel,
}


@pytest.mark.parametrize("sampler", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("side", [0, 2])
@pytest.mark.parametrize("n", [1, 2, 3, 6, 7])
@pytest.mark.parametrize("stop", STOPS)
def test_a_stop_inside_an_accepted_run_leaves_plain_decodings_state(
    stop: str, n: int, side: int, sampler: Sampler
) -> None:
    truth = _truth(24, sampler)
    if stop == "stop id":
        n = truth.index(truth[n - 1]) + 1
    with Session(TARGET, Oracle(truth, side), PROMPT) as session:
        request: dict[str, Any] = {"max_tokens": 12, "sampler": sampler, "budget": 32}
        STOPS[stop](session, request, n, truth)
        events = list(session.generate(Request(**request)))
        assert [event.token for event in events] == truth[:n]
        wanted = {
            "limit": Stop.MAX_TOKENS,
            "stop id": Stop.END_OF_TEXT,
            "stop rule": Stop.STOP_RULE,
            "cancel": Stop.CANCELLED,
        }[stop]
        assert [event.stop for event in events] == [None] * (n - 1) + [wanted]
        assert [event.position for event in events] == [5 + i for i in range(n)]
        _assert_plain(session, n, sampler)
        more = [e.token for e in session.generate(Request(12, sampler, budget=32))]
        assert more == truth[n : n + 12]
        _assert_plain(session, n + 12, sampler)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_closing_the_generator_commits_exactly_what_was_seen(n: int) -> None:
    truth = _truth(24)
    with Session(TARGET, Oracle(truth, 1), PROMPT) as session:
        generator = session.generate(Request(12, GREEDY, budget=32))
        assert [next(generator).token for _ in range(n)] == truth[:n]
        generator.close()
        _assert_plain(session, n, GREEDY)
        assert [e.token for e in session.generate(Request(4, GREEDY))] == truth[n : n + 4]


@settings(max_examples=30)
@given(
    budgets=st.lists(st.integers(0, 32), min_size=1, max_size=6),
    side=st.integers(0, 3),
    sampled=st.booleans(),
)
def test_any_budgets_give_the_same_text_logits_and_state(
    budgets: list[int], side: int, sampled: bool
) -> None:
    sampler = SAMPLED if sampled else GREEDY
    total = 4 * len(budgets)
    plain, state = plain_run(TARGET, PROMPT, total, sampler)
    trace = Trace()
    with Session(TARGET, Oracle(plain.tokens, side), PROMPT) as session:
        for budget in budgets:
            request = Request(4, sampler, budget=budget, on_logits=trace.on_logits)
            trace.tokens += [event.token for event in session.generate(request)]
        compare(trace, plain, TARGET.state_arrays(session.sequence), state, len(PROMPT))


def test_outcomes_name_the_accepted_candidates() -> None:
    truth = _truth(12)
    adapter = Oracle(truth, side=2)
    with Session(TARGET, adapter, PROMPT) as session:
        list(session.generate(Request(4, GREEDY, budget=9)))
    # three levels of three candidates fit the budget, the right one last in each
    assert adapter.outcomes[0] == Outcome((2, 5, 8), truth[3], None, rows=10)
    assert adapter.outcomes[0].seconds > 0


def test_extend_is_a_longer_prompt() -> None:
    with Session(TARGET, NoneAdapter(), PROMPT) as session:
        first = [e.token for e in session.generate(Request(5, GREEDY))]
        session.extend([9, 9, 2])
        second = [e.token for e in session.generate(Request(5, GREEDY))]
        ours = TARGET.state_arrays(session.sequence)
    with Session(TARGET, NoneAdapter(), [*PROMPT, *first, 9, 9, 2]) as session:
        assert [e.token for e in session.generate(Request(5, GREEDY))] == second
        theirs = TARGET.state_arrays(session.sequence)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)


class Hostile(Adapter):
    """Returns or raises whatever it is given."""

    def __init__(self, answer: Any) -> None:
        super().__init__()
        self.answer = answer

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer(views) if callable(self.answer) else self.answer


HOSTILE: dict[str, Any] = {
    "raises": RuntimeError("no"),
    "returns None": None,
    "returns no proposal": [],
    "returns two proposals": [Proposal(), Proposal()],
    "returns a string": ["abc"],
    "forward parent": [Proposal([1, 2], [1, -1])],
    "own parent": [Proposal([1], [0])],
    "parent -2": [Proposal([1], [-2])],
    "duplicate siblings": [Proposal([1, 1], [-1, -1])],
    "token out of range": [Proposal([VOCAB], [-1])],
    "negative token": [Proposal([-1], [-1])],
    "huge token": [Proposal([2**80], [-1])],
    "float token": [Proposal([1.5], [-1])],  # type: ignore[list-item]
    "NaN parent": [Proposal([1], [float("nan")])],  # type: ignore[list-item]
    "None for tokens": [Proposal(None, None)],  # type: ignore[arg-type]
    "more parents than tokens": [Proposal([1], [-1, 0])],
    "over budget": [Proposal(list(range(30)), [-1] * 30)],
    "NaN log-probability": [Proposal([1], [-1], [float("nan")])],
    "positive log-probability": [Proposal([1], [-1], [0.5])],
    "too few log-probabilities": [Proposal([1, 2], [-1, -1], [-1.0])],
    "text as log-probability": [Proposal([1], [-1], ["x"])],  # type: ignore[list-item]
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_bad_proposal_costs_a_round_and_is_named(answer: Any) -> None:
    with Session(TARGET, Hostile(answer), PROMPT, adapter_name="hostile") as session:
        tokens = [e.token for e in session.generate(Request(6, GREEDY, budget=20))]
        assert tokens == _truth(6)
        assert session.stats.refused == 5  # the last token of six asks for no candidates
        assert "'hostile'" in (session.stats.refusal or "")
        assert "\n" not in (session.stats.refusal or "")
        _assert_plain(session, 6, GREEDY)


def test_a_bad_root_token_is_not_a_candidates_business() -> None:
    with Session(TARGET, Hostile([Proposal([0], [-1])]), PROMPT) as session:
        list(session.generate(Request(6, GREEDY)))
        assert session.stats.refused == 0


@pytest.mark.parametrize("hook", ["open", "observe", "close"])
def test_an_adapter_may_raise_anywhere(hook: str) -> None:
    def explode(*_: object) -> None:
        raise ZeroDivisionError("boom")

    adapter = NoneAdapter()
    setattr(adapter, hook, explode)
    with Session(TARGET, adapter, PROMPT) as session:
        assert [e.token for e in session.generate(Request(3, GREEDY))] == _truth(3)
    assert "boom" in (session.stats.adapter_error or "")
    assert session.stats.refused == 0
    TARGET.close(TARGET.open())  # the slot was given back


def test_candidates_too_deep_to_be_used_are_not_verified() -> None:
    truth = _truth(12)
    with Session(TARGET, Oracle(truth), PROMPT) as session:
        list(session.generate(Request(3, GREEDY, budget=20)))
        assert session.stats.rows == 3  # root and two candidates; the bonus makes three tokens


def test_the_context_can_be_filled_to_the_last_position() -> None:
    target = tiny_target(context=12, max_nodes=9, slots=1)
    with Session(target, NoneAdapter(), PROMPT) as session:
        plain = [e.token for e in session.generate(Request(100, GREEDY))]
    # 12 positions are in the state in the end; one more token is decided from them
    assert len(plain) == 8
    for side in (0, 1):
        with Session(target, Oracle(plain, side), PROMPT) as session:
            events = list(session.generate(Request(100, GREEDY, budget=8)))
            assert [e.token for e in events] == plain
            assert events[-1].stop is Stop.CONTEXT
            assert session.sequence.length == 12
            assert list(session.generate(Request(100, GREEDY))) == []


@pytest.mark.parametrize(
    ("prompt", "message"), [((), "empty"), ([1] * 65, "more than the context of 64")]
)
def test_prompts_that_do_not_fit(prompt: Sequence[int], message: str) -> None:
    with pytest.raises(CapacityError, match=message):
        Session(TARGET, NoneAdapter(), prompt)


def test_a_processor_that_raises_leaves_a_session_that_can_go_on() -> None:
    calls: list[int] = []

    def moody(history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        calls.append(len(history))
        if len(calls) == 4:
            raise SpeclaError("not this one")
        return logits

    truth = _truth(12)
    with Session(TARGET, Oracle(truth, 1), PROMPT) as session:
        request = Request(9, Sampler(SamplingParams(), [moody]), budget=4)
        with pytest.raises(SpeclaError, match="not this one"):
            list(session.generate(request))
        done = len(session.tokens) - len(PROMPT)
        assert 0 < done < 9
        _assert_plain(session, done, GREEDY)
        session.extend([1])
        assert session.sequence.length == len(PROMPT) + done


def test_no_possible_token_is_an_error_not_token_zero() -> None:
    target = tiny_target(slots=1)
    target.trunk.output_norm[:] = np.nan
    with (
        Session(target, NoneAdapter(), PROMPT) as session,
        pytest.raises(SpeclaError, match="no token is possible at position 5"),
    ):
        list(session.generate(Request(3, GREEDY)))


class Features(Oracle):
    """Keeps a copy of all features it can see after each round."""

    def needs(self) -> Needs:
        return Needs(features=(0, 2))

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        view = views[0]
        self.last = np.array(view.features(0, len(view.tokens) - 1))


@pytest.mark.parametrize("side", [0, 2])
def test_features_follow_the_accepted_path(side: int) -> None:
    truth = _truth(12)
    adapter = Features(truth, side)
    with Session(TARGET, adapter, PROMPT) as session:
        list(session.generate(Request(12, GREEDY, budget=8)))
        tokens = list(session.tokens)[:-1]
    sequence = TARGET.open()
    for token in tokens:
        TARGET.prefill([(sequence, [token])])
    wanted = TARGET.features(sequence, 0, len(tokens))
    assert adapter.last.tobytes() == np.array(wanted).tobytes()
    TARGET.close(sequence)


def test_needs_are_checked_when_the_adapter_is_chosen() -> None:
    with pytest.raises(OptionError, match=r"features of layers \[0, 2\]"):
        Session(tiny_target(slots=1), Features([]), PROMPT)


def test_batched_sequences_have_the_bytes_of_lonely_ones() -> None:
    """Three sequences, ragged trees, one step: every row equals its own single run."""
    from specla.core.topology import Tree

    prompts = [(1, 2, 3, 4), (5,), (7, 8)]
    trees = [Tree.build((9, 1, 2, 3), (-1, 0, 0, 2)), Tree.lone(4), Tree.chain((6, 7, 8))]
    together = [TARGET.open() for _ in prompts]
    TARGET.prefill(list(zip(together, prompts, strict=True)))
    verified = TARGET.verify(list(zip(together, trees, strict=True)))
    rows = [TARGET.logits(verified, row) for row in range(verified.offsets[-1])]
    for sequence in together:
        TARGET.close(sequence)
    for i, (prompt, tree) in enumerate(zip(prompts, trees, strict=True)):
        alone = TARGET.open()
        TARGET.prefill([(alone, prompt)])
        single = TARGET.verify([(alone, tree)])
        for node in range(len(tree)):
            assert (
                TARGET.logits(single, node).tobytes() == rows[verified.offsets[i] + node].tobytes()
            )
        TARGET.close(alone)


# -- found by attacking the engine -----------------------------------------------------------------


def test_one_generation_at_a_time() -> None:
    """Two live generators once committed one's path against the other's tree."""
    with Session(TARGET, Oracle(_truth(12), 1), PROMPT) as session:
        first = session.generate(Request(8, GREEDY, budget=8))
        seen = [next(first).token, next(first).token]
        with pytest.raises(LifecycleError, match="unfinished"):
            next(session.generate(Request(8, GREEDY)))
        with pytest.raises(LifecycleError, match="unfinished"):
            session.extend([1])
        seen += [event.token for event in first]
        assert seen == _truth(8)
        _assert_plain(session, 8, GREEDY)


def test_a_refused_extend_changes_nothing() -> None:
    with Session(TARGET, NoneAdapter(), PROMPT) as session:
        list(session.generate(Request(2, GREEDY)))
        for bad in ([1, VOCAB], [1] * 18 + [-1], [1.5], [1] * 60):
            with pytest.raises((TopologyError, CapacityError)):
                session.extend(bad)  # type: ignore[arg-type]
            _assert_plain(session, 2, GREEDY)


@pytest.mark.parametrize("prompt", [[VOCAB], [1, -1], [1, 2.5]])
def test_a_prompt_token_outside_the_vocabulary_is_refused(prompt: list[Any]) -> None:
    with pytest.raises(TopologyError, match=r"tokens\["):
        Session(TARGET, NoneAdapter(), prompt)


def test_an_extend_that_dies_between_chunks_keeps_text_and_state_together() -> None:
    target = tiny_target(context=64, chunk=4, slots=2)
    boom: list[int] = []

    def on_prefill(done: int, total: int) -> None:
        if boom and done >= 8:
            raise ZeroDivisionError

    with Session(target, NoneAdapter(), PROMPT, on_prefill=on_prefill) as session:
        boom.append(1)
        with pytest.raises(ZeroDivisionError):
            session.extend(list(range(12)))
        assert list(session.tokens) == [*PROMPT, *range(8)]
        text = [event.token for event in session.generate(Request(5, GREEDY))]
    plain, _ = plain_decode(target, [*PROMPT, *range(8)], 5, GREEDY)
    assert text == plain.tokens


def test_logits_of_interleaved_sessions_are_their_own() -> None:
    target = tiny_target(context=64, max_nodes=33, slots=2)
    truth = {prompt: plain_decode(target, prompt, 8, GREEDY)[0] for prompt in (PROMPT, (9, 9))}
    traces = {prompt: Trace() for prompt in truth}
    sessions = [Session(target, Oracle(truth[p].tokens, 1), p) for p in truth]
    running = [
        session.generate(Request(8, GREEDY, budget=12, on_logits=traces[prompt].on_logits))
        for session, prompt in zip(sessions, truth, strict=True)
    ]
    for _ in range(8):
        for generator in running:
            next(generator)
    for prompt, trace in traces.items():
        assert trace.digests == truth[prompt].digests


def test_an_error_of_the_commit_is_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    with Session(TARGET, NoneAdapter(), PROMPT) as session:
        generator = session.generate(Request(3, GREEDY))
        next(generator)

        def fail(*_: object) -> None:
            raise ZeroDivisionError("commit")

        monkeypatch.setattr(TARGET, "commit", fail)
        with pytest.raises(ZeroDivisionError, match="commit"):
            generator.close()


@pytest.mark.parametrize("after", [False, True])
def test_an_interrupt_around_the_commit_loses_no_token(
    after: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = _truth(12)
    with Session(TARGET, Oracle(truth, 1), PROMPT) as session:
        commit = TARGET.commit

        def interrupted(*arguments: Any) -> None:
            if after:
                commit(*arguments)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(TARGET, "commit", interrupted)
            with pytest.raises(KeyboardInterrupt):
                list(session.generate(Request(3, GREEDY, budget=8)))
        rest = [event.token for event in session.generate(Request(6, GREEDY, budget=8))]
        start = 3 if after else 0
        assert rest == truth[start : start + 6]
        _assert_plain(session, start + 6, GREEDY)


def test_cancelling_between_two_tokens_is_the_same_with_and_without_speculation() -> None:
    for adapter in (NoneAdapter(), Oracle(_truth(12), 1)):
        with Session(TARGET, adapter, PROMPT) as session:
            seen = []
            for event in session.generate(Request(9, GREEDY, budget=16)):
                seen.append(event.token)
                if len(seen) == 3:
                    session.cancel()
            assert seen == _truth(3)
            assert session.stop is Stop.CANCELLED
            _assert_plain(session, 3, GREEDY)


def test_closing_a_session_under_its_generator_is_quiet() -> None:
    session = Session(TARGET, NoneAdapter(), PROMPT)
    generator = session.generate(Request(3, GREEDY))
    next(generator)
    session.close()
    generator.close()
    with pytest.raises(LifecycleError, match="closed"):
        next(session.generate(Request(3, GREEDY)))
    TARGET.close(TARGET.open())


def test_nothing_is_asked_of_an_adapter_after_its_sequence_is_closed() -> None:
    """A generator that was taken further once asked for the next round's proposal."""
    adapter = Oracle(_truth(12))
    session = Session(TARGET, adapter, PROMPT)
    generator = session.generate(Request(9, GREEDY, budget=2))
    seen = [next(generator).token]
    session.close()
    adapter.propose = lambda views: pytest.fail("propose after close")  # type: ignore[method-assign]
    with pytest.raises(LifecycleError, match="generate on a session that was closed"):
        seen += [event.token for event in generator]
    # what the round had decided still comes
    assert seen == _truth(12)[: len(seen)] and session.stats.refused == 0


class _MuteError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def _greedy_for_room(views: Sequence[SequenceView]) -> list[Proposal]:
    object.__setattr__(views[0], "budget", 10_000)
    return [Proposal(list(range(30)), [-1] * 30)]


ENDLESS = Proposal(itertools.count(), itertools.count(-1))  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [[ENDLESS], _MuteError(), _greedy_for_room])
def test_nor_do_these_reach_further(answer: Any) -> None:
    with Session(TARGET, Hostile(answer), PROMPT, adapter_name="hostile") as session:
        tokens = [e.token for e in session.generate(Request(4, GREEDY, budget=20))]
        assert tokens == _truth(4)
        assert session.stats.refused == 3
        assert "'hostile'" in (session.stats.refusal or "")


@pytest.mark.parametrize("bad", [{"max_tokens": 2.5}, {"max_tokens": -1}, {"budget": 2.5}])
def test_impossible_requests(bad: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match="whole number"):
        Request(**({"max_tokens": 1, "sampler": GREEDY} | bad))


# -- found by planting bugs ------------------------------------------------------------------------


def test_a_wrong_guess_of_one_token_is_not_accepted() -> None:
    truth = _truth(8)

    def wrong(views: Sequence[SequenceView]) -> list[Proposal]:
        right = truth[len(views[0].tokens) - len(PROMPT)]
        return [Proposal([(right + 1) % VOCAB], [-1])]

    with Session(TARGET, Hostile(wrong), PROMPT) as session:
        assert [e.token for e in session.generate(Request(8, GREEDY, budget=8))] == truth
        assert session.stats.refused == 0 and session.stats.rows > 8
        _assert_plain(session, 8, GREEDY)


@pytest.mark.parametrize(
    "params",
    [
        {"repetition_penalty": 1.8},
        {"frequency_penalty": 2.0},
        {"temperature": 3.0, "top_k": 6, "seed": 3},
        {"temperature": 3.0, "top_p": 0.95, "presence_penalty": 1.0, "seed": 4},
    ],
    ids=["repetition", "frequency", "top k", "presence"],
)
def test_what_depends_on_history_or_position_is_plain_decodings(params: dict[str, Any]) -> None:
    """Candidates count as text where they are accepted, and only those."""
    sampler = Sampler(SamplingParams(**params))
    truth = _truth(20, sampler)
    assert truth != _truth(20)
    for side in (0, 2):
        with Session(TARGET, Oracle(truth, side), PROMPT) as session:
            request = Request(20, sampler, budget=12)
            assert [e.token for e in session.generate(request)] == truth
            assert session.stats.rounds < 10
            _assert_plain(session, 20, sampler)


def test_outcomes_are_numbered_as_in_the_proposal() -> None:
    """Also where candidates that are too deep were left out before the accepted one."""
    truth = _truth(2)
    wrong = [(truth[0] + i) % VOCAB for i in (1, 2, 3)]
    proposal = Proposal([wrong[0], wrong[1], wrong[2], truth[0]], [-1, 0, 1, -1])
    seen: list[Outcome] = []
    adapter = Hostile([proposal])
    adapter.observe = lambda _, outcomes: seen.extend(outcomes)  # type: ignore[method-assign]
    with Session(TARGET, adapter, PROMPT) as session:
        assert [e.token for e in session.generate(Request(2, GREEDY, budget=8))] == truth
        assert seen == [Outcome((3,), truth[1], None, rows=3)]
