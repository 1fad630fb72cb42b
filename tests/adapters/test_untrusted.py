"""An adapter is never trusted: whatever it does, the text is plain decoding's, byte for byte.

Malformed trees are in tests/engine; here are adapters that misbehave in other ways: what they
raise, what they write to, what they keep, how they lie about their own objects.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from support.tiny import VOCAB, tiny_target

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.check import Trace, compare, plain_decode
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.qwen35.target import Qwen35Target

PROMPT = (3, 1, 4, 1, 5)
GREEDY = Sampler(SamplingParams())
COUNT = 6
TARGET: Qwen35Target
PLAIN: tuple[Trace, dict[str, np.ndarray]]


@pytest.fixture(autouse=True, scope="module")
def _a_target_on_each_backend(backend_name: str) -> None:
    global TARGET, PLAIN
    TARGET = tiny_target(context=64, max_nodes=33, features=(0, 2))
    PLAIN = plain_decode(TARGET, PROMPT, COUNT, GREEDY)


Answer = Callable[["Hostile", SequenceView], Any]


class Hostile(Adapter):
    """Proposes what a function says."""

    def __init__(self, answer: Answer, layers: tuple[int, ...] = ()) -> None:
        super().__init__()
        self.answer, self.layers = answer, layers
        self.kept: list[Any] = []

    def needs(self) -> Needs:
        return Needs(features=self.layers)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self.answer(self, view) for view in views]


def decode(adapter: Adapter, count: int = COUNT) -> Session:
    """Decode and compare tokens, logits and state with plain decoding; the closed session."""
    trace = Trace()
    with Session(TARGET, adapter, PROMPT, adapter_name="hostile") as session:
        request = Request(count, GREEDY, budget=20, on_logits=trace.on_logits)
        trace.tokens = [event.token for event in session.generate(request)]
        compare(trace, *_plain(count, session), len(PROMPT))
    return session


def _plain(count: int, session: Session) -> tuple[Any, Any, Any]:
    plain, state = PLAIN if count == COUNT else plain_decode(TARGET, PROMPT, count, GREEDY)
    return plain, TARGET.state_arrays(session.sequence), state


class CustomExit(BaseException):
    pass


def _raise(error: BaseException) -> Answer:
    def answer(adapter: Hostile, view: SequenceView) -> Proposal:
        raise error

    return answer


def _recurse(adapter: Hostile, view: SequenceView) -> Proposal:
    return _recurse(adapter, view)


def _assign_token(adapter: Hostile, view: SequenceView) -> Proposal:
    view.tokens[0] = 1  # type: ignore[index]
    return Proposal()


def _append_token(adapter: Hostile, view: SequenceView) -> Proposal:
    view.tokens.append(1)  # type: ignore[attr-defined]
    return Proposal()


def _set_field(adapter: Hostile, view: SequenceView) -> Proposal:
    view.budget = 100  # type: ignore[misc]
    return Proposal()


def _all_features(adapter: Hostile, view: SequenceView) -> Proposal:
    view.features(0, len(view.tokens) + 5)
    return Proposal()


def _undeclared(adapter: Hostile, view: SequenceView) -> Proposal:
    view.features("all", None)  # type: ignore[arg-type]
    return Proposal()


class _Liar:
    """Says that it has two items and never ends."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[float]:
        return itertools.repeat(self.value)


class _BadIndex:
    def __index__(self) -> int:
        raise RuntimeError("no number after all")


class _BadRepr:
    def __repr__(self) -> str:
        raise RuntimeError("not even shown")


def _ends_in_error() -> Iterator[int]:
    yield 1
    raise LookupError("half-way")


def _broken_off() -> Proposal:
    return Proposal(_ends_in_error(), [-1])  # type: ignore[arg-type]


def _is(proposal: Any) -> Answer:
    return lambda adapter, view: proposal


REFUSED: dict[str, tuple[Answer, str]] = {
    "recursion": (_recurse, "RecursionError"),
    "GeneratorExit": (_raise(GeneratorExit("g")), "GeneratorExit: g"),
    "StopIteration": (_raise(StopIteration("s")), "StopIteration: s"),
    "MemoryError": (_raise(MemoryError("m")), "MemoryError: m"),
    "assigns a token": (_assign_token, "does not support item assignment"),
    "appends a token": (_append_token, "no attribute 'append'"),
    "sets the budget": (_set_field, "FrozenInstanceError"),
    "features beyond the state": (_all_features, "features of positions 0..14"),
    "nonsense for features": (_undeclared, "TypeError"),
    "+inf log-probability": (_is(Proposal([1], [-1], [float("inf")])), "log_probs[0] is inf"),
    "huge log-probability": (_is(Proposal([1], [-1], [10**400])), "OverflowError"),
    "log-probabilities without length": (
        _is(Proposal([1], [-1], iter([-1.0]))),  # type: ignore[arg-type]
        "no len()",
    ),
    "endless positive log-probabilities": (
        _is(Proposal([1, 2], [-1, -1], _Liar(1.0))),  # type: ignore[arg-type]
        "log_probs[0] is 1.0",
    ),
    "huge parent": (_is(Proposal([1], [2**70])), "parents[0] is"),
    "very negative parent": (_is(Proposal([1], [-(2**70)])), "parents[0] is"),
    "unprintable integer": (_is(Proposal([1 << 20_000], [-1])), "bits; it is no index"),
    "truth value": (_is(Proposal([True], [-1])), "tokens[0] is True, not an integer"),
    "__index__ that raises": (_is(Proposal([_BadIndex()], [-1])), "no number after all"),  # type: ignore[list-item]
    "__repr__ that raises": (_is(Proposal([_BadRepr()], [-1])), "not even shown"),  # type: ignore[list-item]
    "generator that raises": (lambda adapter, view: _broken_off(), "LookupError: half-way"),
    "text": (_is(Proposal("ab", [-1, -1])), "tokens[0] is 'a'"),  # type: ignore[arg-type]
    "a tree of arrays": (_is(Proposal(np.ones((2, 2), int), [-1, -1])), "not an integer"),  # type: ignore[arg-type]
    "a number": (_is(7), "no attribute 'tokens'"),
    "long and terminal codes": (_raise(RuntimeError("\x1b[2J" + "x" * 10**6)), "?[2J"),
}


@pytest.mark.parametrize(("answer", "reason"), REFUSED.values(), ids=REFUSED.keys())
def test_it_costs_a_round_and_is_named(answer: Answer, reason: str) -> None:
    stats = decode(Hostile(answer, (0, 2))).stats
    assert stats.refused == COUNT - 1  # the last round has no room for candidates
    assert "'hostile'" in (stats.refusal or "") and reason in (stats.refusal or "")
    assert "\n" not in (stats.refusal or "") and len(stats.refusal or "") < 400
    assert (stats.refusal or "").isprintable()
    assert stats.rows == stats.rounds, "nothing of it was verified"


ACCEPTED: dict[str, Answer] = {
    "deep": _is(Proposal.chain([1] * 20)),
    "wide": _is(Proposal(list(range(20)), [-1] * 20)),
    "bytes": _is(Proposal(b"\x01\x02", [-1, 0])),
    "NumPy integers": _is(Proposal(np.array([1, 2]), np.array([-1, 0], np.int8))),  # type: ignore[arg-type]
    "-inf log-probability": _is(Proposal([1], [-1], [float("-inf")])),
    "log-probabilities that never end": _is(
        Proposal([1, 2], [-1, -1], _Liar(-1.0))  # type: ignore[arg-type]
    ),
}


@pytest.mark.parametrize("answer", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_odd_but_valid(answer: Answer) -> None:
    stats = decode(Hostile(answer)).stats
    assert (stats.refused, stats.adapter_errors) == (0, 0)
    assert stats.rows > stats.rounds


@pytest.mark.parametrize("kind", [SystemExit, CustomExit, KeyboardInterrupt])
@pytest.mark.parametrize("hook", ["propose", "observe"])
def test_what_may_come_from_outside_passes_and_the_session_goes_on(
    kind: type[BaseException], hook: str
) -> None:
    """A signal handler raises wherever the program is: swallowing it would keep it alive."""
    adapter = Hostile(_is(Proposal()))

    def once(*_: object) -> list[Proposal]:
        delattr(adapter, hook)
        raise kind("stop")

    with Session(TARGET, adapter, PROMPT, adapter_name="hostile") as session:
        setattr(adapter, hook, once)
        with pytest.raises(kind):
            list(session.generate(Request(COUNT, GREEDY)))
        done = len(session.tokens) - len(PROMPT)
        assert done == (1 if hook == "observe" else 0)
        list(session.generate(Request(COUNT - done, GREEDY)))
        assert list(session.tokens) == [*PROMPT, *PLAIN[0].tokens]
        ours = TARGET.state_arrays(session.sequence)
        assert all(ours[name].tobytes() == array.tobytes() for name, array in PLAIN[1].items())
        stats = session.stats
        told = stats.refusal if hook == "propose" else stats.adapter_error
        if kind is KeyboardInterrupt:
            assert told is None, "the user is no adapter"
        else:
            assert told == f"adapter 'hostile' failed in {hook}: {kind.__name__}: stop"


@pytest.mark.parametrize("hook", ["open", "close"])
def test_an_exit_in_open_or_close_gives_the_slot_back(hook: str) -> None:
    def leave(*_: object) -> None:
        raise SystemExit(3)

    for _ in range(TARGET.options.slots + 1):
        adapter = Hostile(_is(Proposal()))
        setattr(adapter, hook, leave)
        with pytest.raises(SystemExit), Session(TARGET, adapter, PROMPT):
            pass


@pytest.mark.parametrize("hook", ["open", "observe", "close"])
def test_a_generator_exit_elsewhere_is_an_adapter_error(hook: str) -> None:
    def leave(*_: object) -> None:
        raise GeneratorExit

    adapter = Hostile(_is(Proposal()))
    setattr(adapter, hook, leave)
    assert f"failed in {hook}: GeneratorExit" in (decode(adapter).stats.adapter_error or "")


def _write_features(adapter: Hostile, view: SequenceView) -> Proposal:
    seen = view.features(0, len(view.tokens) - 1)
    adapter.kept.append(np.array(seen))
    seen[...] = 0
    return Proposal()


def test_features_cannot_be_written() -> None:
    adapter = Hostile(_write_features, (0, 2))
    stats = decode(adapter).stats
    assert stats.refused == COUNT - 1 and "read-only" in (stats.refusal or "")
    sequence = TARGET.open()
    for token in [*PROMPT, *PLAIN[0].tokens][:-2]:
        TARGET.prefill([(sequence, [token])])
    wanted = np.array(TARGET.features(sequence, 0, len(adapter.kept[-1])))
    TARGET.close(sequence)
    assert adapter.kept[-1].tobytes() == wanted.tobytes(), "others see what the target wrote"


def _break_into_features(adapter: Hostile, view: SequenceView) -> Proposal:
    base = view.features(0, 1)
    while isinstance(base.base, np.ndarray):
        base = base.base
    base.setflags(write=True)
    base[...] = np.nan
    return Proposal([1], [-1])


def test_not_even_features_that_were_forced_open_reach_the_text() -> None:
    """The target writes features and never reads them."""
    assert decode(Hostile(_break_into_features, (0, 2))).stats.refused == 0
    TARGET.store.features.rows[...] = 0  # type: ignore[union-attr]


def _change_afterwards(adapter: Hostile, view: SequenceView) -> Proposal:
    for tokens, parents, log_probs in adapter.kept:  # of earlier rounds, which were verified
        tokens[:], parents[:], log_probs[:] = [VOCAB + 7] * 3, [9, 9, 9], [float("nan")] * 3
    lists = ([1, 2, 3], [-1, -1, 0], [-1.0, -2.0, -3.0])
    adapter.kept.append(lists)
    return Proposal(*lists)


class Late(Hostile):
    """Changes its proposal when it is told of the outcome, and keeps views of a closed sequence."""

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        for tokens, parents, _ in self.kept:
            tokens.clear()
            parents.clear()
        self.view = views[0]

    def close(self, view: SequenceView) -> None:
        self.view.features(0, 1)


def test_a_proposal_is_read_once() -> None:
    for adapter in (Hostile(_change_afterwards), Late(_change_afterwards)):
        stats = decode(adapter).stats
        assert stats.refused == 0 and stats.rows > stats.rounds


def test_a_view_that_is_kept_dies_with_its_sequence() -> None:
    adapter = Late(_is(Proposal()), (0,))
    decode(adapter)
    with pytest.raises(Exception, match=r"closed|CLOSED"):
        adapter.view.features(0, 1)


def _sleep(adapter: Hostile, view: SequenceView) -> Proposal:
    time.sleep(0.01)
    return Proposal()


def test_one_that_sleeps_costs_time_and_nothing_else() -> None:
    stats = decode(Hostile(_sleep)).stats
    assert stats.refused == 0
    assert stats.seconds["draft"] >= 0.01 * (COUNT - 1), "it is the draft's time"


def test_a_view_with_a_forged_root_is_a_copy() -> None:
    def forge(adapter: Hostile, view: SequenceView) -> Proposal:
        object.__setattr__(view, "tokens", [VOCAB + 1])
        object.__setattr__(view, "max_depth", 10_000)
        return Proposal.chain([1, 2])

    stats = decode(Hostile(forge)).stats
    assert stats.refused == 0 and stats.rows > stats.rounds


def test_a_bad_bind_is_refused_before_anything_is_opened() -> None:
    class Bad(Hostile):
        def bind(self, target: TargetInfo) -> None:
            raise RecursionError("deep")

    with pytest.raises(Exception, match="adapter 'hostile' can't be used: RecursionError: deep"):
        decode(Bad(_is(Proposal())))
    TARGET.close(TARGET.open())
