"""Sessions with hostile adapters: short runs of the machine, and cases written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from specla.fuzz.campaign import play_examples
from specla.fuzz.log import Case, Log
from specla.fuzz.script import replay
from specla.fuzz.sessions.adapters import MIX, REAL, AdapterSpec
from specla.fuzz.sessions.bad_proposals import BAD
from specla.fuzz.sessions.machine import BundledSessions, TinySessions
from specla.fuzz.sessions.misuses import MISUSES
from specla.fuzz.sessions.operations import (
    Cancel,
    Check,
    Close,
    Extend,
    Generate,
    GoOn,
    Interleave,
    Misuse,
    Open,
    SessionOperation,
)
from specla.fuzz.sessions.proposals import SOUND
from specla.fuzz.sessions.setups import SessionSetup
from specla.fuzz.sessions.wishes import Trouble, Wish
from specla.fuzz.sessions.world import VERIFIERS

SAMPLED = (("temperature", 1.0), ("top_k", 5), ("seed", 3))


def play(setup: SessionSetup, backend: str, operations: Sequence[SessionOperation]) -> None:
    replay(backend, Case(setup, tuple(operations)))


@pytest.mark.parametrize("backend", ["numpy", "numba"])
def test_a_tiny_model(backend: str) -> None:
    play_examples(TinySessions, backend, 0, log=Log(), count=12)


def test_the_bundled_model() -> None:
    play_examples(BundledSessions, "numba", 0, log=Log(), count=2)


TINY = SessionSetup(features=(0, 2), slots=3, context=80)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_every_kind_of_proposal(verifier: str) -> None:
    """Each in a session of its own; all end with plain decoding's state."""
    world = TINY.build("numba")
    for i, kind in enumerate((*SOUND, *BAD)):
        spec = AdapterSpec(kind, seed=1, branch=3, raises=("open", "observe", "close"))
        wish = Wish(6, SAMPLED if i % 2 else (), budget=12)
        for operation in (Open((3, 1, 4), 0, spec, verifier), Generate(0, wish), Check(0)):
            operation.play(world)
        stats = world.accounts[0].session.stats
        # the last round has no room for candidates
        assert stats.refused == (stats.rounds - 1 if kind in BAD else 0)
        Close(0).play(world)
    world.finish()


@pytest.mark.parametrize("kind", REAL)
def test_real_adapters(kind: str) -> None:
    setup = SessionSetup("bundled", context=64, features=(1, 3, 5, 6), chunk=8)
    spec = AdapterSpec(kind)
    operations = [
        Open((5, 6, 5, 6, 5, 6), 0, spec),
        Open((9,), 0, spec, "sequential", shared=True),
        Interleave(Wish(10, SAMPLED, budget=8), 3, "leave"),
        GoOn(0, 2, "cancel"),
        Extend(0, (1, 2, 3)),
        Generate(0, Wish(6)),
    ]
    play(setup, "numba", operations)


@pytest.mark.parametrize("backend", ["numpy", "numba"])
@pytest.mark.parametrize("end", ["drain", "cancel", "close", "throw", "forget"])
def test_ends_in_mid_round_with_two_others_under_way(backend: str, end: str) -> None:
    wish = Wish(12, budget=8, rule=True)
    operations: list[SessionOperation] = [
        Open((3, 1), 60, AdapterSpec("spine last"), "tree"),
        Open((7,), 0, AdapterSpec("tree"), "replay"),
        Open((8, 8), 0, AdapterSpec(MIX), "sequential"),
        Interleave(wish, 2, "leave"),
        Misuse(0, "token beyond"),
        Check(0),
        Generate(0, wish),
        Interleave(wish, 2, "leave"),
        GoOn(0, 1, end),
        Check(0, "snapshot"),
        GoOn(1, 1, end),
        Check(1, "own"),
        GoOn(2, 1, end),
        Cancel(2),
        Generate(2, wish),
        Generate(2, wish),
        Close(1, "under"),
        Close(0, "twice"),
    ]
    play(TINY, backend, operations)


@pytest.mark.parametrize("how", ["under", "on"])
def test_closing_a_session_before_its_generator(how: str) -> None:
    wish = Wish(12, budget=4)
    operations = [Open(), Open((2,)), Interleave(wish, 2, "leave"), Close(0, how), GoOn(0, 2)]
    play(TINY, "numpy", operations)


def test_misuse_changes_nothing() -> None:
    operations: list[SessionOperation] = [Open(), Open((2,))]
    for leave in (True, False):
        operations.append(Generate(0, Wish(5), 2, "leave" if leave else "drain"))
        operations += [Misuse(session, what) for what in MISUSES for session in (0, 1)]
    play(TINY, "numpy", operations)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_a_backend_that_fails(verifier: str) -> None:
    """Right afterwards, or BROKEN by a write that died; the other session is untouched."""
    setup = SessionSetup(features=(0,), slots=2, failing=True)
    spec, wish = AdapterSpec("spine last"), Wish(6, SAMPLED, budget=6)
    troubles = [Trouble("kernel", n, "before") for n in range(4, 40, 6)]
    troubles += [Trouble("fold", n, when) for n in (1, 6) for when in ("before", "after", "wreck")]
    broken = set()
    for trouble in (*troubles, Trouble("transfer", 3), Trouble("transfer", 11)):
        world = setup.build("numba")
        for operation in (
            Open((3, 1, 4), 0, spec, verifier),
            Open((9,), 0, spec, "tree"),
            Interleave(wish, 2, "drain"),
            Generate(0, wish, trouble=trouble),
        ):
            operation.play(world)
        (account, _) = world.accounts
        world.settle(account)
        broken.add(account.broken)
        for operation in (Generate(0, wish), Check(0), Extend(0, (1, 2, 3, 4, 5), trouble)):
            operation.play(world)
        world.finish()
    assert broken == ({False} if verifier == "replay" else {False, True})


@pytest.mark.parametrize("kind", ["processor", "logits", "rule", "prefill", "propose", "observe"])
def test_a_caller_or_an_adapter_that_raises(kind: str) -> None:
    operations: list[SessionOperation] = []
    for verifier in VERIFIERS:
        operations.append(Open((3, 1, 4), 0, AdapterSpec("tree"), verifier))
        for n in range(3):
            operations += [
                Generate(0, Wish(7, rule=True), trouble=Trouble(kind, n)),
                Extend(0, (1, 2, 3, 4, 5, 6, 7), Trouble(kind, n)),
                Check(0),
            ]
        operations.append(Close(0))
    play(TINY, "numba", operations)


@pytest.mark.parametrize("verifier", VERIFIERS)
def test_interrupts(verifier: str) -> None:
    operations: list[SessionOperation] = []
    for at in range(5, 400, 97):
        operations += [
            Open((3, 1, 4), 0, AdapterSpec("spine last"), verifier),
            Generate(0, Wish(8), trouble=Trouble("interrupt", at)),
            Generate(0, Wish(3)),
            Extend(0, (1, 2, 3, 4, 5), Trouble("interrupt", at // 4)),
            Close(0),
        ]
    play(TINY, "numba", operations)


def test_an_interrupt_never_strikes_what_looks_on() -> None:
    """Wherever it strikes while a session is extended: once that is over, nothing is left to
    strike, least of all the driver's own look at the text."""
    setup = SessionSetup(pattern="ga", context=24)
    for at in range(100, 200):
        trouble = Trouble("interrupt", at)
        play(setup, "numpy", [Open((3, 1, 4, 1, 5)), Extend(0, (0,) * 8, trouble), Check(0)])
