"""The runner that makes graphs of steps, without kernels, and torch's own graphs, without a GPU."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from functools import partial
from itertools import count
from typing import Any, ClassVar

import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402
from support.plans import step_plan  # noqa: E402

from interpreted.recording import RecordingCapture, fails, nothing  # noqa: E402
from specla.backends.plans import PlanUpload  # noqa: E402
from specla.backends.triton import graphs  # noqa: E402
from specla.backends.triton import launch as launches  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.graphs import GraphSteps, TorchCapture  # noqa: E402
from specla.backends.triton.launch import launch, launches_to  # noqa: E402
from specla.core.lifecycle import Progress  # noqa: E402
from specla.core.plan import StepPlan  # noqa: E402
from specla.core.topology import Forest, Tree  # noqa: E402
from specla.errors import OptionError, SpeclaError  # noqa: E402

pytestmark = MARKS


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


def buffers() -> PlanUpload:
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


def test_a_device_that_failed_has_not_done_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """All was launched, but then it turns out that something went wrong on the device."""
    calls, plan = Calls(), buffers().upload(chain(1))
    for _ in range(2):
        calls.run(plan)

    def wait() -> None:
        raise RuntimeError("illegal address")

    monkeypatch.setattr(calls.capture, "wait", wait)
    assert calls.steps.progress is Progress.PARTIAL


# -- torch's own graphs, without a GPU -------------------------------------------------------------


class FakeGraph:
    """A torch.cuda.CUDAGraph that notes what happens to it, and torch's rule for pools: one whose
    last graph is gone can't be used again.

    log: of all graphs.  alive: graphs in each pool.
    """

    log: ClassVar[list[str]] = []
    alive: ClassVar[dict[Any, int]] = {}
    pool: Any = None

    def capture_begin(self, *, pool: Any, capture_error_mode: str) -> None:
        assert capture_error_mode == "thread_local"
        if self.alive.get(pool, 1) == 0:
            raise RuntimeError("use_count > 0 INTERNAL ASSERT FAILED")
        self.log.append("begin")
        self.pool = pool
        self.alive[pool] = self.alive.get(pool, 0) + 1

    def capture_end(self) -> None:
        self.log.append("end")

    def replay(self) -> None:
        self.log.append("replay")

    def __del__(self) -> None:
        if self.pool in self.alive:  # not of an earlier test's
            self.alive[self.pool] -= 1


@pytest.fixture
def torch_capture(monkeypatch: pytest.MonkeyPatch) -> TorchCapture:
    monkeypatch.setattr(FakeGraph, "log", [])
    monkeypatch.setattr(FakeGraph, "alive", {})
    monkeypatch.setattr(torch.cuda, "CUDAGraph", FakeGraph)
    monkeypatch.setattr(torch.cuda, "Stream", lambda device: None)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    handles = count()
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: next(handles))
    return TorchCapture(torch.device("cpu"))


def test_graphs_share_a_pool_while_there_are_any(torch_capture: TorchCapture) -> None:
    kept = [torch_capture.record(lambda: 1) for _ in range(3)]
    assert FakeGraph.alive == {0: 3}
    del kept
    # a model is gone, the next one is made on the same backend
    again = torch_capture.record(lambda: 2)
    assert again.result == 2 and FakeGraph.alive == {0: 0, 1: 1}


def test_a_model_that_is_collected_late_takes_its_pool_along(
    torch_capture: TorchCapture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not between the look at the pool and the capture."""
    cycle: list[Any] = [torch_capture.record(lambda: 1)]
    cycle.append(cycle)
    del cycle

    class Collecting(FakeGraph):
        def __init__(self) -> None:
            if gc.isenabled():
                gc.collect()

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Collecting)
    assert torch_capture.record(lambda: 2).result == 2


def test_after_a_failed_capture_the_next_one_can_be_made(torch_capture: TorchCapture) -> None:
    for call, error in ((fails, SpeclaError), (_interrupted, KeyboardInterrupt)):
        with pytest.raises(error):
            torch_capture.record(call)
        assert torch_capture.record(lambda: 1).result == 1


def test_nothing_is_collected_during_a_capture(torch_capture: TorchCapture) -> None:
    assert gc.isenabled()
    assert torch_capture.record(gc.isenabled).result is False
    with pytest.raises(SpeclaError):
        torch_capture.record(fails)
    assert gc.isenabled()


def test_a_card_that_runs_full_says_so_itself(torch_capture: TorchCapture) -> None:
    """Not that the step can't be captured, nor what ending the capture made of it."""

    def full() -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    def ended(self: FakeGraph) -> None:
        raise RuntimeError("the capture is invalid")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeGraph, "capture_end", ended)
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch_capture.record(full)
        with pytest.raises(SpeclaError, match="the capture is invalid"):
            torch_capture.record(lambda: 1)
    assert torch_capture.record(lambda: 1).result == 1


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
        torch_capture.record(fails)
    assert FakeGraph.log == ["begin", "end"]
    before = launches.taker()
    with pytest.raises(KeyboardInterrupt):
        torch_capture.record(_interrupted)
    assert launches.taker() is before and FakeGraph.log[-1] == "end"


def _interrupted() -> Any:
    raise KeyboardInterrupt


@pytest.mark.parametrize("value", ["x", "false", "2"])
def test_graphs_are_wanted_or_not(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLA_TRITON_GRAPHS", value)
    with pytest.raises(OptionError, match=f"SPECLA_TRITON_GRAPHS is '{value}'; it must be 0 or 1"):
        TritonBackend()
