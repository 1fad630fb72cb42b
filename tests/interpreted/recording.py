"""Graphs without a GPU: calls are taken down, and made again with the same tensors and numbers.

That is what a captured graph does: pointers, grids and numbers are those of the capture, and no
Python of the model runs in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from specla.backends.triton import launch
from specla.backends.triton.graphs import Graph
from specla.backends.triton.launch import launches_to


def nothing(*_: Any) -> None:
    """A runner that computes nothing."""


def fails(*_: Any) -> Any:
    """Calls, or whatever else, that end in an error."""
    raise RuntimeError("no result")


class RecordingCapture:
    """A specla.backends.triton.graphs.Capture. device: what runs a launch of a graph.

    graphs, launches: how many were recorded, and how many of their kernels were run.
    """

    def __init__(self, device: launch.Runner = launch.on_device) -> None:
        self.device = device
        self.graphs = 0
        self.launches = 0

    def record(self, calls: Callable[[], Any]) -> Graph:
        steps: list[Callable[[], None]] = []
        with launches_to(lambda asked: steps.append(self._launch(asked))), _Taken(steps):
            result = calls()
        self.graphs += 1

        def replay() -> None:
            for step in steps:
                step()

        return Graph(replay, result, ())

    def _launch(self, asked: launch.Launch) -> Callable[[], None]:
        def step() -> None:
            self.device(asked)
            self.launches += 1

        return step

    def wait(self) -> None:
        pass


class _Taken(TorchFunctionMode):
    """Torch's own operations. What changes memory waits for the replay; what makes a tensor or a
    view must have one to return."""

    def __init__(self, steps: list[Callable[[], None]]) -> None:
        super().__init__()
        self._steps = steps

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords, name = keywords or {}, getattr(function, "__name__", "")
        if name == "__setitem__" or (name.endswith("_") and not name.endswith("__")):
            self._steps.append(lambda: function(*arguments, **keywords))
            return arguments[0]
        result = function(*arguments, **keywords)
        results = result if isinstance(result, tuple) else (result,)
        if any(isinstance(x, torch.Tensor) for x in results):
            self._steps.append(lambda: _again(function, arguments, keywords, result))
        return result


def _again(function: Any, arguments: Any, keywords: Any, result: Any) -> None:
    """The same operation; its results go where they went when it was recorded."""
    fresh = function(*arguments, **keywords)
    old, new = (x if isinstance(x, tuple) else (x,) for x in (result, fresh))
    for target, source in zip(old, new, strict=True):
        if target.data_ptr() != source.data_ptr():
            target.copy_(source)
