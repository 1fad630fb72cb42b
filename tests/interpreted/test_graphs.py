"""Steps as graphs: the bytes of the reference whatever they are padded to and launched with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, ClassVar

import pytest
from support.arrays import equal

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402
from support.plans import step_plan  # noqa: E402

from interpreted.recording import RecordingCapture  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.plans import PlanBuffers  # noqa: E402
from specla.backends.triton import graphs, plans  # noqa: E402
from specla.backends.triton import launch as launches  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.graphs import GraphSteps, TorchCapture, launches_to  # noqa: E402
from specla.backends.triton.launch import launch  # noqa: E402
from specla.core.lifecycle import Phase, Progress  # noqa: E402
from specla.core.plan import StepPlan  # noqa: E402
from specla.core.topology import Forest, Tree  # noqa: E402
from specla.errors import OptionError, SpeclaError  # noqa: E402
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


# -- the runner, without kernels -------------------------------------------------------------------


def nothing(*_: Any) -> None:
    """A runner that computes nothing."""


class Calls:
    """A step of two launches; how often Python made them."""

    def __init__(self) -> None:
        self.made = 0
        self.capture = RecordingCapture(nothing)
        self.steps = GraphSteps(self.capture)

    def __call__(self) -> int:
        self.made += 1
        for _ in range(2):
            launch(None, (1,))
        return self.made

    def run(self, plan: StepPlan) -> Any:
        with launches_to(nothing):
            return self.steps.run("key", plan, self)


def buffers() -> PlanBuffers:
    """For padded plans."""
    return TritonBackend(graphs=True, capture=RecordingCapture()).plan_buffers(9)


def chain(n: int) -> StepPlan:
    return step_plan(Forest((Tree.chain(range(n)),)))


def test_called_then_captured_then_only_launched() -> None:
    calls, plan = Calls(), buffers().upload(chain(1))
    assert [calls.run(plan) for _ in range(4)] == [1, 2, 2, 2]
    assert (calls.made, calls.capture.graphs, calls.capture.launches) == (2, 1, 6)
    assert calls.steps.progress is Progress.DONE
    calls.steps.forget()
    assert calls.steps.progress is Progress.UNTOUCHED


def test_what_a_graph_knows_of_its_plan() -> None:
    """Where it lies, its sizes: none of that may differ."""
    calls, mine, other = Calls(), buffers(), buffers()
    for n in (5, 6, 5):
        calls.run(mine.upload(chain(n)))
    assert calls.made == 2
    calls.run(other.upload(chain(5)))
    assert calls.made == 3
    calls.run(other.upload(step_plan(Forest((Tree.lone(1), Tree.chain(range(4)))))))
    assert calls.made == 4


def test_old_graphs_are_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graphs, "KEPT", 2)
    calls = Calls()
    one, two, three = (buffers().upload(chain(1)) for _ in range(3))
    for plan in (one, two, one, one, three):
        calls.run(plan)
    # two's is gone, one's graph is still there
    made = calls.made
    calls.run(one)
    assert calls.made == made
    calls.run(two)
    assert (calls.made, len(calls.steps._graphs)) == (made + 1, 2)


def test_preparing_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []
    monkeypatch.setattr(graphs.launch, "compile_only", lambda *a: compiled.append(a))
    calls, plan = Calls(), buffers().upload(chain(1))
    for _ in range(2):
        calls.steps.prepare("key", plan, calls)
    assert (len(compiled), calls.made, calls.capture.launches) == (2, 1, 0)
    assert calls.steps.progress is Progress.UNTOUCHED
    assert calls.run(plan) == 2


def test_graphs_need_a_gpu() -> None:
    with pytest.raises(OptionError, match="graphs on cpu"):
        TritonBackend(graphs=True)


# -- torch's own graphs, without a GPU -------------------------------------------------------------


class FakeGraph:
    """A torch.cuda.CUDAGraph that notes what happens to it."""

    log: ClassVar[list[str]] = []

    def capture_begin(self, **_: Any) -> None:
        self.log.append("begin")

    def capture_end(self) -> None:
        self.log.append("end")

    def replay(self) -> None:
        self.log.append("replay")


@pytest.fixture
def torch_capture(monkeypatch: pytest.MonkeyPatch) -> TorchCapture:
    monkeypatch.setattr(FakeGraph, "log", [])
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    return TorchCapture(torch.device("cpu"))


def test_torch_captures_launches_and_keeps_their_memory(
    torch_capture: TorchCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = FakeGraph.log
    monkeypatch.setattr(graphs.launch, "on_device", lambda *launch: log.append("launch"))
    x = torch.zeros(8)

    def calls(x: Any) -> int:
        launch(None, (1,), x[2:4], 7)
        return 3

    graph = torch_capture.record(partial(calls, x))
    assert (log, graph.result) == (["begin", "launch", "end"], 3)
    # a view of it: the memory is alive
    assert [tensor.untyped_storage().data_ptr() for tensor in graph.memory] == [
        x.untyped_storage().data_ptr()
    ]
    graph.replay()
    assert log[-1] == "replay"


def test_a_capture_that_fails_is_ended_and_says_what_to_do(torch_capture: TorchCapture) -> None:
    with pytest.raises(SpeclaError, match=r"no result.*SPECLA_TRITON_GRAPHS=0"):
        torch_capture.record(_fails)
    assert FakeGraph.log == ["begin", "end"]
    before = launches.runner
    with pytest.raises(KeyboardInterrupt):
        torch_capture.record(_interrupted)
    assert launches.runner is before and FakeGraph.log[-1] == "end"


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
        monkeypatch.setattr(target, "_head", _fails)
    if when == "after":
        run = target._runner.run
        monkeypatch.setattr(target._runner, "run", lambda *step: _fails(run(*step)))
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


def test_a_device_that_failed_has_not_done_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All was launched, but then it turns out that something went wrong on the device."""
    calls, plan = Calls(), buffers().upload(chain(1))
    for _ in range(2):
        calls.run(plan)

    def wait() -> None:
        raise RuntimeError("illegal address")

    monkeypatch.setattr(calls.capture, "wait", wait)
    assert calls.steps.progress is Progress.PARTIAL


def _interrupted() -> Any:
    raise KeyboardInterrupt


def _fails(*_: Any) -> Any:
    raise RuntimeError("no result")
