"""Steps as graphs: the bytes of the reference whatever they are padded to and launched with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from support.arrays import equal

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from interpreted.recording import RecordingCapture, fails, nothing  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton import plans  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.launch import launches_to  # noqa: E402
from specla.core.lifecycle import Phase  # noqa: E402
from specla.core.topology import Tree  # noqa: E402
from specla.fuzz.tiny import tiny_target  # noqa: E402

pytestmark = MARKS

SIBLINGS = Tree.build([1, 2, 3], [-1, 0, 0])
SETTINGS: dict[str, Any] = {"kind": "Q8_0", "pattern": "ga", "max_nodes": 5, "chunk": 8}


class Twins:
    """A target whose steps are graphs, and the reference beside it."""

    def __init__(self, **settings: Any) -> None:
        self.capture = RecordingCapture()
        self.backend = TritonBackend(graphs=True, capture=self.capture)
        self.targets = [tiny_target(b, **SETTINGS | settings) for b in (self.backend, REFERENCE)]

    def open(self) -> tuple[Any, Any]:
        one, other = (target.open() for target in self.targets)
        return one, other

    def each(self, function: Callable[[Any, int], Any]) -> list[Any]:
        return [function(target, i) for i, target in enumerate(self.targets)]

    def prefill(self, *items: tuple[Any, Sequence[int]], logits: bool = False) -> None:
        found = self.each(
            lambda target, i: target.prefill([(s[i], t) for s, t in items], logits=logits)
        )
        if logits:
            self.check("logits", lambda target, i: found[i].logits)

    def verify(self, *items: tuple[Any, Tree]) -> None:
        found = self.each(lambda target, i: target.verify([(s[i], tree) for s, tree in items]))
        self.check("logits", lambda target, i: found[i].logits)
        ids = self.each(lambda target, i: target.argmax(found[i]))
        assert ids[0].tolist() == ids[1].tolist()

    def commit(self, *items: tuple[Any, Sequence[int]]) -> None:
        self.each(lambda target, i: target.store.commit_all([(s[i], path) for s, path in items]))

    def check_memory(self) -> None:
        """All that outlives a step, whatever of it is in use: nothing else was written."""
        for name in ("state", "window", "key", "delta", "decay", "inputs"):
            self.check(name, lambda target, i: getattr(target.store.recurrent, name))  # noqa: B023
        self.check("keys", lambda target, i: target.store.kv.key)
        self.check("values", lambda target, i: target.store.kv.value)
        self.check("features", lambda target, i: target.store.features.rows)

    def check(self, name: str, array: Callable[[Any, int], Any]) -> None:
        assert equal(*self.each(lambda t, i: t.backend.download(array(t, i)))), name


REFERENCE = NumpyBackend()


def test_padding_writes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sequences, steps of odd sizes; a commit for both, of siblings."""
    monkeypatch.setattr(plans, "SIZES", (2, 8))
    twins = Twins(slots=2, features=(0,))
    one, two = twins.open(), twins.open()
    twins.prefill((one, [5, 6]), (two, [7]))
    twins.check_memory()
    twins.verify((one, SIBLINGS), (two, Tree.build([8, 9], [-1, 0])))
    twins.check_memory()
    twins.verify((two, SIBLINGS), (one, SIBLINGS))
    twins.commit((one, [0, 2]), (two, [0, 2]))
    twins.check_memory()
    assert twins.capture.graphs == 1


def test_graphs_through_a_decoding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps of changing sizes, trees and chains, commits of all kinds. Between steps scratch memory
    grows and moves: graphs of before go on in the old one."""
    monkeypatch.setattr(plans, "SIZES", (1, 3, 6))
    twins = Twins(slots=1, max_nodes=3)
    text = twins.open()
    twins.prefill((text, [5, 6, 7]))
    rounds: list[tuple[Tree, list[int]]] = [
        (SIBLINGS, [0, 2]),
        (Tree.chain([3, 4]), [0]),
        (Tree.lone(9), [0]),
        (Tree.build([1, 2, 3], [-1, 0, 1]), [0, 1, 2]),
    ]
    for tree, path in rounds:
        twins.verify((text, tree))
        twins.commit((text, path))
    assert twins.capture.graphs == 1
    # logits of so many rows: larger scratch memory than any step had
    twins.prefill((text, range(4)), logits=True)
    for tree, path in [rounds[0], rounds[2], rounds[3]]:
        twins.verify((text, tree))
        twins.commit((text, path))
    # steps of 3 and of 1 row, and a commit
    assert twins.capture.graphs == 3
    states = twins.each(lambda target, i: target.state_arrays(text[i]))
    for name in states[1]:
        assert equal(states[0][name], states[1][name]), name


# -- failures --------------------------------------------------------------------------------------


def pending(twins: Twins, steps: int) -> Any:
    """A sequence with factors pending; so many steps like the next one have been."""
    target = twins.targets[0]
    sequence = target.open()
    target.prefill([(sequence, [5, 6, 7])])
    for _ in range(steps):
        target.verify([(sequence, SIBLINGS)])
        target.discard(sequence)
    target.verify([(sequence, Tree.chain([3, 4]))])
    target.commit(sequence, [0, 1])
    assert sequence.phase is Phase.PENDING
    return sequence


@pytest.mark.parametrize("steps", [0, 1, 2])
@pytest.mark.parametrize("when", ["first", "middle", "capture", "after"])
def test_what_a_failure_leaves(steps: int, when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that is called (none was before), captured, or launched as a graph."""
    monkeypatch.setattr(plans, "SIZES", (2, 3))
    twins = Twins(slots=1)
    twins.capture.device = nothing
    target = twins.targets[0]
    with launches_to(nothing):
        sequence = pending(twins, steps)

    left = {"first": 0, "middle": 20}.get(when)

    def failing(*_: Any) -> None:
        nonlocal left
        if left == 0:
            raise RuntimeError("a launch failed")
        if left is not None:
            left -= 1

    twins.capture.device = failing
    if when == "capture":
        monkeypatch.setattr(target.trunk, "head", fails)
    if when == "after":
        run = target._runner.run
        monkeypatch.setattr(target._runner, "run", lambda *step: fails(run(*step)))
    wanted = {
        # what did not fail before its launch may have been launched
        "first": Phase.BROKEN,
        "middle": Phase.BROKEN,
        # a graph isn't called any more, a capture computes nothing
        "capture": {0: Phase.BROKEN, 1: Phase.PENDING, 2: Phase.VERIFIED}[steps],
        # everything ran and nothing came back: folded, and undecided
        "after": Phase.CLEAN,
    }[when]
    with launches_to(failing):
        try:
            target.verify([(sequence, SIBLINGS)])
        except RuntimeError:
            assert wanted is not Phase.VERIFIED
    assert sequence.phase is wanted
