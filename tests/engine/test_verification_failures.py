"""Kernels that fail and interrupts in the middle of a round, for every way to verify."""

from __future__ import annotations

from typing import Any

import pytest
from engine.test_engine import GREEDY, PROMPT, Oracle
from support.plain import plain_run
from support.tiny import tiny_target

from specla import choosing, engine, verification
from specla.backends import create_backend
from specla.core import lifecycle
from specla.core.lifecycle import Phase
from specla.engine import Request, Session
from specla.errors import BrokenSequenceError
from specla.fuzz.failing import KERNELS, FailingBackend, InjectedError
from specla.fuzz.interrupts import interrupted
from specla.models import store
from specla.models.qwen35.target import Qwen35Target
from specla.verification import (
    ReplayVerifier,
    SequentialVerifier,
    TreeVerifier,
    UnfusedTreeVerifier,
    Verifier,
)

# places in a round that are tried: every n-th, so many that each operation is hit
STRIDES = {TreeVerifier: 4, UnfusedTreeVerifier: 5, ReplayVerifier: 7, SequentialVerifier: 19}

each = pytest.mark.parametrize("verifier", STRIDES, ids=lambda kind: kind.__name__)


def _failing(target_options: dict[str, Any]) -> tuple[Qwen35Target, FailingBackend]:
    backend = FailingBackend(create_backend("numpy"))
    return tiny_target(backend=backend, pattern="ga", **target_options), backend


OPTIONS = {"context": 64, "max_nodes": 17, "features": (0,), "chunk": 4, "slots": 2}


@each
@pytest.mark.parametrize("when", ["before", "wreck"])
def test_a_kernel_that_fails(verifier: type[Verifier], when: str) -> None:
    """Text and state never disagree afterwards; a replay survives whatever broke."""
    target, backend = _failing(OPTIONS)
    truth = plain_run(target, PROMPT, 24, GREEDY)[0].tokens
    broken = survived = 0
    for n in range(0, 400, STRIDES[verifier]):
        with Session(target, Oracle(truth, 1), PROMPT, verifier=verifier) as opened:
            list(opened.generate(Request(3, GREEDY, budget=12)))
            backend.arm(n, when, KERNELS)
            try:
                list(opened.generate(Request(6, GREEDY, budget=12)))
            except InjectedError:
                pass
            else:
                backend.disarm()
                break
            backend.disarm()
            done = len(opened.tokens) - len(PROMPT)
            try:
                rest = [e.token for e in opened.generate(Request(4, GREEDY, budget=12))]
            except BrokenSequenceError:
                assert verifier is not ReplayVerifier
                broken += 1
                continue
            survived += 1
            done = len(opened.tokens) - len(PROMPT) - 4
            assert rest == truth[done : done + 4] and done >= 3
            _, state = plain_run(target, PROMPT, done + 4, GREEDY)
            ours = target.state_arrays(opened.sequence)
            assert all(ours[name].tobytes() == state[name].tobytes() for name in state)
    assert survived
    pool = target.store.pages.pool
    assert pool.free == pool.n_pages, "pages leaked"


FILES = tuple(m.__file__ for m in (store, lifecycle, verification, engine, choosing))


@each
def test_an_interrupt_at_any_line_of_a_round(verifier: type[Verifier]) -> None:
    """Ctrl-C between two lines: the session goes on with the right bytes, or says BROKEN."""
    target, _ = _failing({**OPTIONS, "features": ()})
    wanted = plain_run(target, PROMPT, 40, GREEDY)[0].tokens
    at, stride, sound = 0, 5 * STRIDES[verifier] + 1, 0
    while True:
        at += stride
        with Session(target, Oracle(wanted, 1), PROMPT, verifier=verifier) as opened:
            list(opened.generate(Request(2, GREEDY, budget=12)))
            running = opened.generate(Request(6, GREEDY, budget=12))
            # generate() itself only marks that a generation runs: a mark that stays is harmless
            if not interrupted(lambda g=running: list(g), at, FILES, skip=("generate",)):
                break
            try:
                rest = [e.token for e in opened.generate(Request(4, GREEDY, budget=12))]
            except BrokenSequenceError:
                assert opened.sequence.phase is Phase.BROKEN
                assert verifier is not ReplayVerifier
                continue
            sound += 1
            done = len(opened.tokens) - len(PROMPT)
            assert rest == wanted[done - 4 : done]
            ours = target.state_arrays(opened.sequence)
            _, state = plain_run(target, PROMPT, done, GREEDY)
            wrong = [n for n in ours if ours[n].tobytes() != state[n].tobytes()]
            assert not wrong, (at, done, wrong)
    assert sound > 5


def test_an_adapter_is_told_of_no_round_that_broke(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupted commit between two nodes: the outcome once named a token that is not in."""
    target, _ = _failing(OPTIONS)
    adapter = Oracle(plain_run(target, PROMPT, 24, GREEDY)[0].tokens)
    with Session(target, adapter, PROMPT, verifier=SequentialVerifier) as opened:
        running = opened.generate(Request(6, GREEDY, budget=12))
        next(running)

        def interrupted_commit(*_: object) -> None:
            with opened.sequence.ledger.writing("a commit"):
                raise KeyboardInterrupt

        monkeypatch.setattr(target, "commit", interrupted_commit)
        with pytest.raises(KeyboardInterrupt):
            next(running)
        assert opened.sequence.phase is Phase.BROKEN
        assert list(opened.tokens) == list(PROMPT)
        assert adapter.outcomes == [] and opened.stats.rounds == 0
