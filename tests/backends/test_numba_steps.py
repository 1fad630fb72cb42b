"""Recorded steps: the bytes of single calls, whatever the plans, and what an interrupt leaves."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.forests import random_tree
from support.tiny import VOCAB, tiny_target

from specla.backends.numba import program as module
from specla.backends.numba import steps, threads, walker
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.program import Program
from specla.backends.steps import StepRunner
from specla.core import lifecycle
from specla.core.lifecycle import Phase, Progress
from specla.core.topology import Tree
from specla.fuzz.interrupts import interrupted
from specla.models.qwen35 import target as target_module
from specla.models.qwen35 import trunk

FILES = tuple(m.__file__ for m in (lifecycle, module, steps, target_module, threads, trunk))


class OneByOne(NumbaBackend):
    """The same kernels, each run as it is called."""

    def step_runner(self) -> StepRunner:
        return StepRunner()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(("features", "long_step"), [((), 32), ((0, 2), 1)])
def test_recorded_steps_are_the_single_calls(
    threads: int, features: tuple[int, ...], long_step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many steps of few shapes, so that programs meet plans that they weren't recorded with."""
    monkeypatch.setattr(module, "LONG_STEP", long_step)
    # where products are functions a list has three calls at most, and two slices then
    monkeypatch.setattr(module, "SLICE", 2)
    rng = np.random.default_rng(3)
    targets = [
        tiny_target(2, backend=backend, kind="Q8_0", pattern="ggag", features=features)
        for backend in (NumbaBackend(threads=threads), OneByOne(threads=1))
    ]
    pairs = [tuple(target.open() for target in targets) for _ in range(3)]
    for turn in range(25):
        chosen = pairs[: 1 + turn % 3]
        for operation in ("prefill", "verify"):
            size = int(rng.integers(1, 4))
            trees = [random_tree(rng, size, VOCAB) for _ in chosen]
            logits = []
            for i, target in enumerate(targets):
                if operation == "prefill":
                    items = [(p[i], t.tokens) for p, t in zip(chosen, trees, strict=True)]
                    result: Any = target.prefill(items, logits=bool(turn % 2))
                else:
                    result = target.verify([(p[i], t) for p, t in zip(chosen, trees, strict=True)])
                logits.append(None if result is None else np.array(result.logits))
            assert equal(*logits) if logits[0] is not None else logits[1] is None
        for pair, tree in zip(chosen, trees, strict=True):
            path = tree.path_to(int(rng.integers(size)))
            for target, sequence in zip(targets, pair, strict=True):
                target.commit(sequence, path)
    for one, other in pairs:
        mine, theirs = targets[0].state_arrays(one), targets[1].state_arrays(other)
        for name in theirs:
            assert equal(mine[name], theirs[name]), name
        if features:
            assert equal(
                targets[0].features(one, 0, one.length), targets[1].features(other, 0, one.length)
            )
    programs = targets[0]._runner._programs
    assert 10 < len(programs) < 30


def test_commits_of_equally_many_rows() -> None:
    """One sequence's path of four nodes, then two paths of two: another program, or the second
    one's features stay behind."""
    target, judge = (
        tiny_target(2, backend=backend, features=(0,))
        for backend in (NumbaBackend(threads=1), OneByOne(threads=1))
    )
    tree = Tree.build([1, 2, 3, 4, 5], [-1, 0, 0, 2, 3])
    found = []
    for one in (target, judge):
        pair = [one.open(), one.open()]
        for sequence in pair:
            one.prefill([(sequence, (7, 8))])
        one.verify([(pair[0], tree)])
        one.commit(pair[0], (0, 2, 3, 4))
        one.verify([(sequence, tree) for sequence in pair])
        one.store.commit_all([(sequence, (0, 2)) for sequence in pair])
        found.append([np.array(one.features(s, 0, s.length)) for s in pair])
        found[-1] += [array for s in pair for array in one.state_arrays(s).values()]
    assert all(equal(mine, theirs) for mine, theirs in zip(*found, strict=True))


def test_old_programs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "KEPT", 2)
    target = tiny_target(1, backend=NumbaBackend())
    sequence = target.open()
    for n in (1, 2, 3, 1, 2, 3):
        target.prefill([(sequence, range(n))])
    assert [key[1] for key in target._runner._programs] == [2, 3]


@pytest.mark.parametrize(
    ("when", "phase"),
    [("before", Phase.PENDING), ("after", Phase.CLEAN), ("recording", Phase.PENDING)],
)
def test_interrupts_around_a_step(when: str, phase: Phase, monkeypatch: pytest.MonkeyPatch) -> None:
    """Native code isn't interrupted: what was pending is still so, or folded, and never half."""
    backend = NumbaBackend()
    target, twin = (tiny_target(1, backend=backend) for _ in range(2))
    tree = Tree.build([1, 2, 3], [-1, 0, 1])
    sequences = []
    for t in (target, twin):
        sequence = t.open()
        t.prefill([(sequence, [5, 6, 7])])
        for _ in range(2):
            t.verify([(sequence, tree)])
            t.commit(sequence, [0, 1])
        sequences.append(sequence)
    original = Program.run

    def interrupted(program: Program, *arguments: Any) -> None:
        if when == "after":
            original(program, *arguments)
        raise KeyboardInterrupt

    def no_recording(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Program, "run", interrupted)
        if when == "recording":
            target._runner._programs.clear()
            patch.setattr(target.trunk, "forward", no_recording)
        with pytest.raises(KeyboardInterrupt):
            target.verify([(sequences[0], tree)])
    assert sequences[0].ledger.phase is phase
    if phase is Phase.PENDING:
        target.flush(sequences[0])
    twin.flush(sequences[1])
    mine, theirs = target.state_arrays(sequences[0]), twin.state_arrays(sequences[1])
    for name in theirs:
        assert equal(mine[name], theirs[name]), name
    result = target.verify([(sequences[0], tree)]), twin.verify([(sequences[1], tree)])
    assert equal(result[0].logits, result[1].logits)


def test_a_step_that_stopped_half_way_breaks_the_sequence() -> None:
    target = tiny_target(1, backend=NumbaBackend(), poison=True)  # several parts
    sequence, tree = target.open(), Tree.build([1, 2], [-1, 0])
    target.prefill([(sequence, [5, 6, 7])])
    for _ in range(2):
        target.verify([(sequence, tree)])
        target.commit(sequence, [0, 1])
    program = next(p for key, p in target._runner._programs.items() if key[0][0] and key[1] == 2)
    middle = len(program._parts) // 2

    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    program._parts[middle] = stop
    with pytest.raises(KeyboardInterrupt):
        target.verify([(sequence, tree)])
    assert sequence.ledger.phase is Phase.BROKEN


def test_a_list_of_calls_knows_how_far_it_came() -> None:
    backend = NumbaBackend()
    target = tiny_target(1, backend=backend)
    sequence = target.open()
    target.verify([(sequence, Tree.build([1, 2, 3], [-1, 0, 0]))])
    target.commit(sequence, [0, 2])
    (program,) = target.store._runner._programs.values()
    (calls,) = program._lists
    assert len(calls._rows) > 1

    class Interrupted:
        """After its first walk."""

        walked = False

        def walk(self, *arguments: Any) -> None:
            if self.walked:
                raise KeyboardInterrupt
            self.walked = True
            backend.team.walk(*arguments)

    for _ in range(2):
        calls.reset()
        assert calls.progress is Progress.UNTOUCHED
        team: Any = Interrupted()
        with pytest.raises(KeyboardInterrupt):
            calls.run(team, 1)
        assert calls.progress is Progress.PARTIAL
    calls.reset()
    calls.run(backend.team, 1)
    assert calls.progress is Progress.DONE


PROMPT, TREE = [5, 6, 7], Tree.build([1, 2, 3], [-1, 0, 1])


def _pending(target: Any) -> Any:
    """A sequence with two accepted factors that no layer has folded."""
    sequence = target.open()
    target.prefill([(sequence, PROMPT)])
    target.verify([(sequence, TREE)])
    target.commit(sequence, [0, 1])
    return sequence


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("recorded", [True, False])
def test_an_interrupt_at_any_line_of_a_step(recorded: bool) -> None:
    """Right bytes or BROKEN, never anything else; also for the other sequence of the batch."""
    target = tiny_target(2, backend=NumbaBackend(threads=2), pattern="ga", poison=False)
    wanted, outcomes, at = None, set(), 0
    # a first recording makes hundreds of calls, most of them alike
    stride = 1 if recorded else 7
    while True:
        at += stride
        sequences = [_pending(target) for _ in range(2)]
        if not recorded:
            target._runner._programs.clear()
        if wanted is None:
            control = _pending(target)
            target.verify([(s, TREE) for s in sequences])
            wanted = target.state_arrays(control)
            target.close(control)
        struck = interrupted(
            lambda pair=sequences: target.verify([(s, TREE) for s in pair]),
            at,
            FILES,
            events=("line", "call"),
        )
        for sequence in sequences:
            outcomes.add(sequence.ledger.phase)
            if sequence.ledger.phase is not Phase.BROKEN:
                if sequence.ledger.phase is Phase.VERIFIED:
                    target.discard(sequence)
                found = target.state_arrays(sequence)
                for name in wanted:
                    assert equal(found[name], wanted[name]), (at, name)
            target.close(sequence)
        if not struck:
            break
    assert at > 100 and {Phase.PENDING, Phase.CLEAN, Phase.VERIFIED} <= outcomes


def test_a_kernel_without_memory_breaks_the_sequence(monkeypatch: pytest.MonkeyPatch) -> None:
    target = tiny_target(1, backend=NumbaBackend(), pattern="ga")
    sequence = _pending(target)
    original = walker.lead()

    def failing(*arguments: int) -> int:
        original(*arguments[:2], arguments[2] // 2, *arguments[3:])  # half of the calls
        return 1

    monkeypatch.setattr(walker, "lead", lambda: failing)
    with pytest.raises(MemoryError):
        target.verify([(sequence, TREE)])
    assert sequence.ledger.phase is Phase.BROKEN
