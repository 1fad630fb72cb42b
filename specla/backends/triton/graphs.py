"""Forward steps as captured graphs: a step runner of the GPU backend.

A step of many small kernels costs more time in Python than on the device. So its calls are captured
as a graph, which is launched as a whole from then on. A captured kernel has its arguments for good:
where the plan lies (plans.py), how many rows it is launched for, the scratch memory of its time. So
a graph serves the steps that agree in all of that, and keeps alive all memory that it refers to.

The first step of its kind runs as it is called, which compiles its kernels; a capture may not
compile, and an odd step that never comes again isn't worth one. The second is captured, which
computes nothing, then launched, like all later ones.
"""

from __future__ import annotations

import gc
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields
from typing import Any, Protocol
from weakref import WeakSet

import torch

from specla.backends.steps import StepRunner
from specla.backends.triton import launch
from specla.backends.triton.launch import Launch, taken
from specla.core.lifecycle import Progress
from specla.core.plan import CommitPlan, StepPlan
from specla.errors import SpeclaError

KEPT = 64
"""Graphs kept: one for each size of step that lately occurred."""


@dataclass(frozen=True)
class Graph:
    """A step that can be run again. result: what its calls returned.  memory: what it refers to."""

    replay: Callable[[], None]
    result: Any
    memory: tuple[Any, ...]


class Capture(Protocol):
    """How graphs are made. Tests have another way than :class:`TorchCapture`, without a GPU."""

    def record(self, calls: Callable[[], Any]) -> Graph:
        """Make a graph of kernel calls. Nothing is computed."""

    def wait(self) -> None:
        """Until everything that was launched has run. Raises if something of it failed."""


class GraphSteps(StepRunner):
    """Runs a step's calls the first time, captures them the second time, then launches graphs."""

    whole = True
    rehearsals = 2

    def __init__(self, capture: Capture) -> None:
        self._capture = capture
        # None: it has run once
        self._graphs: OrderedDict[Hashable, Graph | None] = OrderedDict()
        self._compiled: set[Hashable] = set()
        self._progress = Progress.UNTOUCHED

    @property
    def progress(self) -> Progress:
        """Of launches: what follows waits for them. But asked after a failure, the device has its
        say too."""
        if self._progress is Progress.DONE:
            try:
                self._capture.wait()
            except Exception:
                return Progress.PARTIAL
        return self._progress

    def forget(self) -> None:
        self._progress = Progress.UNTOUCHED

    def run(self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]) -> Any:
        self.forget()
        key = (key, *_layout(plan))
        if key not in self._graphs:
            result = self._run_calls(calls)
            self._graphs[key] = None
            if len(self._graphs) > KEPT:
                self._graphs.popitem(last=False)
            return result
        graph = self._graphs[key]
        if graph is None:
            graph = self._graphs[key] = self._capture.record(calls)
        self._graphs.move_to_end(key)
        self._progress = Progress.PARTIAL
        graph.replay()
        self._progress = Progress.DONE
        return graph.result

    def _run_calls(self, calls: Callable[[], Any]) -> Any:
        def first(asked: Launch) -> None:
            self._progress = Progress.PARTIAL
            inner(asked)

        inner = launch.taker()
        result = taken(first, calls)
        self._progress = Progress.DONE
        return result

    def prepare(self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]) -> None:
        """Compile the kernels."""
        key = (key, *_layout(plan))
        if key not in self._compiled:
            taken(launch.compile_only, calls)
            self._compiled.add(key)


def _layout(plan: StepPlan | CommitPlan) -> tuple[Hashable, ...]:
    """All that a captured kernel knows of its plan: sizes, and where the arrays lie."""
    values = (getattr(plan, field.name) for field in fields(plan))
    return tuple(
        (value.data_ptr(), *value.shape) if isinstance(value, torch.Tensor) else value
        for value in values
    )


@contextmanager
def _no_collection() -> Iterator[None]:
    """A graph that were freed by Python's collector would wait for the device, which a capture
    doesn't survive."""
    enabled = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if enabled:
            gc.enable()


class TorchCapture:
    """CUDA graphs, which torch's builds for HIP have too.

    All captures use one stream and one pool for what torch's own operations allocate meanwhile:
    nothing of that outlives a launch.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)
        self._pool: Any = None
        self._graphs: WeakSet[Any] = WeakSet()

    def record(self, calls: Callable[[], Any]) -> Graph:
        memory: dict[int, Any] = {}

        def keep(asked: Launch) -> None:
            for argument in asked.arguments:
                if isinstance(argument, torch.Tensor):
                    memory[argument.untyped_storage().data_ptr()] = argument
            launch.on_device(asked)

        torch.cuda.synchronize(self._device)
        try:
            with _no_collection(), torch.cuda.stream(self._stream):
                if not self._graphs:
                    # torch refuses a pool whose last graph is gone
                    self._pool = torch.cuda.graph_pool_handle()
                graph = torch.cuda.CUDAGraph()
                result = taken(keep, lambda: self._captured(graph, calls))
                self._graphs.add(graph)
        except BaseException as error:
            # a pool in which no capture came to its end is of no use either
            self._graphs.clear()
            full = isinstance(error, torch.cuda.OutOfMemoryError)
            if full or not isinstance(error, RuntimeError):
                raise
            raise SpeclaError(
                f"a step can't be captured as a graph ({str(error).splitlines()[0]}); "
                f"run kernel by kernel with SPECLA_TRITON_GRAPHS=0"
            ) from error
        return Graph(graph.replay, result, tuple(memory.values()))

    def _captured(self, graph: Any, calls: Callable[[], Any]) -> Any:
        # other threads may use the device meanwhile
        try:
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            result = calls()
        except BaseException:
            with suppress(RuntimeError):  # what it says of the capture is a consequence
                graph.capture_end()
            raise
        graph.capture_end()
        return result

    def wait(self) -> None:
        torch.cuda.synchronize(self._device)
