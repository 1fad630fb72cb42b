"""The machines: every order of the operations, on a tiny random model and on the bundled one."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from specla.fuzz.machine import FuzzMachine
from specla.fuzz.sessions.adapters import DRAFTED, MIX, REAL, AdapterSpec
from specla.fuzz.sessions.misuses import MISUSES
from specla.fuzz.sessions.operations import (
    OPERATIONS,
    Cancel,
    Check,
    Close,
    Extend,
    Generate,
    GoOn,
    Interleave,
    Misuse,
    Open,
)
from specla.fuzz.sessions.proposals import SOUND
from specla.fuzz.sessions.setups import SessionSetup
from specla.fuzz.sessions.wishes import Trouble, Wish
from specla.fuzz.sessions.world import VERIFIERS

numbers = st.integers(0, 3)
ends = st.sampled_from(["drain", "cancel", "close", "throw", "forget", "leave"])
tokens = st.integers(0, 39)

SAMPLINGS: tuple[tuple[tuple[str, Any], ...], ...] = (
    (),
    (("temperature", 1.0), ("seed", 1)),
    (("temperature", 0.8), ("top_k", 5), ("seed", 2)),
    (("temperature", 1.5), ("top_k", 12), ("top_p", 0.9), ("min_p", 0.05), ("seed", 3)),
    (("temperature", 1.0), ("top_p", 0.7), ("seed", 2**64 - 1)),
    (("temperature", 0.7), ("top_k", 2000), ("seed", 4)),
    (("repetition_penalty", 2.0),),
    (("frequency_penalty", 1.5), ("presence_penalty", 0.3), ("penalty_window", 6)),
    (("temperature", 1.0), ("repetition_penalty", 0.5), ("top_k", 7), ("seed", 5)),
    (("logit_bias", ((3, 2.0), (7, -1e9))), ("temperature", 0.9), ("seed", 6)),
)

wishes = st.builds(
    Wish,
    max_tokens=st.sampled_from([6, 1, 2, 0, 3, 9, 12, 12, 16, 20]),
    sampling=st.sampled_from(SAMPLINGS),
    ban=st.sampled_from([-1, -1, -1, 0, 2]),
    budget=st.sampled_from([8, 2, 1, 0, 4, 6, 12, 16, 16, 16, 70]),
    stop_ids=st.sampled_from([(), (), (1, 5, 9), tuple(range(0, 40, 3))]),
    rule=st.booleans(),
    stop_at=st.sampled_from([0, 0, 1, 3, 6]),
    cancel_at=st.sampled_from([0, 0, 0, 2, 5]),
    logits=st.booleans(),
)

_quiet = st.just(Trouble())
_callers = st.builds(
    Trouble,
    st.sampled_from(["processor", "logits", "rule", "prefill", "propose", "observe"]),
    st.integers(0, 5),
)
_places = st.one_of(st.integers(1, 40), st.integers(1, 250), st.integers(1, 1200))
_interrupts = st.builds(Trouble, st.just("interrupt"), _places)
_whens = st.sampled_from(["before", "after", "wreck"])
_kernels = st.one_of(
    st.builds(Trouble, st.just("kernel"), st.integers(0, 150), _whens),
    st.builds(Trouble, st.just("fold"), st.integers(0, 12), _whens),
)
_transfers = st.builds(Trouble, st.just("transfer"), st.integers(0, 60))
"""Failures of the backend: nothing happens on one that can't fail."""

troubles = st.one_of(_quiet, _quiet, _quiet, _callers, _interrupts, _kernels, _kernels, _transfers)

failures = st.one_of(_kernels, _kernels, _callers, _interrupts)

kinds = st.sampled_from(
    [*["tree", "spine last", "shuffled tree", "right chain", "too deep", MIX] * 3, *sorted(SOUND)]
)
"""Mostly such as are accepted: a round that accepts much can lose much. Bad ones come with MIX."""
hooks = st.sampled_from([(), (), (), ("observe",), ("open", "close"), ("open", "observe", "close")])


def _specs(kind: st.SearchStrategy[str]) -> st.SearchStrategy[AdapterSpec]:
    return st.builds(
        AdapterSpec,
        kind=kind,
        seed=st.integers(0, 999),
        error=st.sampled_from([0, 0, 0, 0, 15, 40]),
        branch=st.sampled_from([2, 1, 2, 3]),
        depth=st.sampled_from([4, 2, 3, 6, 9, 9]),
        raises=hooks,
    )


free = st.builds(AdapterSpec, kind=st.sampled_from([n for n in REAL if n not in DRAFTED]))
hostile = _specs(kinds)


looks = st.one_of(
    st.sampled_from([(Check, (how,)) for how in ("fork", "own", "snapshot")]),
    st.sampled_from([(Check, (how,)) for how in ("fork", "own", "snapshot")]),
    st.sampled_from([(Misuse, (what,)) for what in sorted(MISUSES)] + [(Cancel, ())]),
)
"""What changes nothing, or hardly anything: one rule for all, so that the others have more room."""

has_sessions = precondition(lambda self: bool(self.world.accounts))


class Sessions(FuzzMachine):
    """Several sessions on one target, plain or hostile adapters, any failure."""

    operations = OPERATIONS
    adapters: st.SearchStrategy[AdapterSpec] = st.one_of(*[hostile] * 5, free)

    def _draw_adapter(self, data: st.DataObject) -> AdapterSpec:
        return data.draw(self.adapters, label="adapter")

    @precondition(lambda self: self.world.has_room)
    @rule(
        data=st.data(),
        prompt=st.one_of(
            st.sampled_from([(3, 1, 4, 1, 5), (7,)]), st.lists(tokens, min_size=1, max_size=9)
        ),
        lead=st.sampled_from([0, 0, 0, 0, 5, 30, 60]),
        verifier=st.sampled_from(["tree", *VERIFIERS]),
        shared=st.booleans(),
        trouble=troubles,
    )
    def open(
        self,
        data: st.DataObject,
        prompt: Any,
        lead: int,
        verifier: str,
        shared: bool,
        trouble: Trouble,
    ) -> None:
        adapter = self._draw_adapter(data)
        self.play(Open(tuple(prompt), lead, adapter, verifier, shared, trouble))

    @has_sessions
    @rule(session=numbers, wish=wishes)
    def generate(self, session: int, wish: Wish) -> None:
        self.play(Generate(session, wish))

    @has_sessions
    @rule(
        session=numbers,
        wish=wishes,
        take=st.sampled_from([1, 0, 2, 3, 5, 7, 9, 12]),
        end=ends,
        cancelled=st.sampled_from([False, False, False, True]),
        trouble=troubles,
    )
    def generate_some(
        self, session: int, wish: Wish, take: int, end: str, cancelled: bool, trouble: Trouble
    ) -> None:
        self.play(Generate(session, wish, take, end, cancelled, trouble))

    @has_sessions
    @rule(session=numbers, wish=wishes, trouble=failures)
    def generate_in_trouble(self, session: int, wish: Wish, trouble: Trouble) -> None:
        """Fail, go on, and look at what came of it."""
        self.play(Generate(session, wish, trouble=trouble))
        self.play(Generate(session, wish))
        self.play(Check(session, "own"))

    @has_sessions
    @rule(session=numbers, take=st.sampled_from([1, 0, 2, 3, 5]), end=ends, trouble=troubles)
    def go_on(self, session: int, take: int, end: str, trouble: Trouble) -> None:
        self.play(GoOn(session, take, end, trouble))

    @has_sessions
    @rule(wish=wishes, turns=st.integers(1, 8), end=ends)
    def interleave(self, wish: Wish, turns: int, end: str) -> None:
        self.play(Interleave(wish, turns, end))

    @has_sessions
    @rule(session=numbers, ids=st.lists(tokens, max_size=11), trouble=troubles)
    def extend(self, session: int, ids: list[int], trouble: Trouble) -> None:
        self.play(Extend(session, tuple(ids), trouble))

    @has_sessions
    @rule(session=numbers, how=st.sampled_from(["once", "twice", "under", "on"]))
    def close(self, session: int, how: str) -> None:
        self.play(Close(session, how))

    @has_sessions
    @rule(session=numbers, look=looks)
    def look(
        self, session: int, look: tuple[type[Check | Misuse | Cancel], tuple[str, ...]]
    ) -> None:
        kind, arguments = look
        self.play(kind(session, *arguments))


class TinySessions(Sessions):
    """On a tiny random model."""

    @initialize(
        setup=st.builds(
            SessionSetup,
            pattern=st.sampled_from(["ga", "gag", "ag"]),
            kind=st.sampled_from(["F32", "Q8_0"]),
            context=st.sampled_from([24, 80, 80]),
            max_nodes=st.sampled_from([17, 17, 17, 3]),
            chunk=st.sampled_from([4, 4, 16]),
            slots=st.sampled_from([3, 2, 1]),
            features=st.sampled_from([(), (0, 1), (1,)]),
            failing=st.booleans(),
            threads=st.sampled_from([1, 1, 2]),
        ),
        adapter=hostile,
        verifier=st.sampled_from(["tree", *VERIFIERS]),
    )
    def start(self, setup: SessionSetup, adapter: AdapterSpec, verifier: str) -> None:
        self.begin(setup)
        self.play(Open((3, 1, 4, 1, 5), adapter=adapter, verifier=verifier))


class BundledSessions(Sessions):
    """On the bundled model, with its drafter too."""

    drafted = st.builds(AdapterSpec, kind=st.sampled_from(DRAFTED))
    adapters = st.one_of(hostile, drafted, drafted, free)

    @initialize(
        setup=st.builds(
            SessionSetup,
            model=st.just("bundled"),
            context=st.sampled_from([48, 96, 96]),
            max_nodes=st.sampled_from([17, 9]),
            chunk=st.sampled_from([8, 32]),
            slots=st.sampled_from([3, 2]),
            features=st.just((1, 3, 5, 6)),
            failing=st.sampled_from([False, False, True]),
            threads=st.sampled_from([1, 2]),
        ),
        adapter=st.one_of(hostile, drafted),
        verifier=st.sampled_from(["tree", *VERIFIERS]),
    )
    def start(self, setup: SessionSetup, adapter: AdapterSpec, verifier: str) -> None:
        self.begin(setup)
        self.play(Open((3, 1, 4, 1, 5), adapter=adapter, verifier=verifier))
