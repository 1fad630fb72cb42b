"""Whose launches go where: threads and GPUs."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402

from interpreted.recording import RecordingCapture, nothing  # noqa: E402
from specla.backends.triton import launch  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.graphs import GraphSteps  # noqa: E402
from specla.core.plan import Place, build_plan  # noqa: E402
from specla.core.topology import Forest, Tree  # noqa: E402
from specla.fuzz.interrupts import interrupted  # noqa: E402

pytestmark = MARKS


def test_another_threads_launches_are_its_own() -> None:
    """While one thread compiles for a model, or captures a step of it, another computes."""
    steps, backend = GraphSteps(RecordingCapture()), TritonBackend()
    one = build_plan(Forest((Tree.lone(1),)), [Place(0, 0, 0, (0,), (0,))])
    plan = backend.plan_buffers(9).upload(one)
    inside, done = threading.Event(), threading.Event()

    def slow() -> None:
        inside.set()
        assert done.wait(60)

    for work in (steps.prepare, steps.run, steps.run):
        thread = threading.Thread(target=work, args=("a step", plan, slow))
        inside.clear()
        done.clear()
        thread.start()
        assert inside.wait(60)
        x, out = backend.upload(np.ones(4, np.float32)), backend.zeros((4,))
        backend.add(x, x, out)
        done.set()
        thread.join()
        assert backend.download(out).tolist() == [2.0] * 4
    assert launch.taker() is launch.on_device


def test_takers_are_put_back_in_order() -> None:
    with launch.launches_to(nothing):
        with pytest.raises(RuntimeError), launch.launches_to(print):
            raise RuntimeError
        assert launch.taker() is nothing
    assert launch.taker() is launch.on_device


def test_an_interrupt_leaves_no_taker_behind() -> None:
    """Wherever it strikes; a taker that stayed would take launches for ever, uncomputed."""

    def step() -> None:
        launch.taken(nothing, lambda: launch.launch(None, (1,)))

    at = 1
    while interrupted(step, at, {str(launch.__file__)}):
        assert launch.taker() is launch.on_device, at
        at += 1
    assert at > 8


def test_a_kernel_runs_where_its_tensors_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not on the GPU that the thread used last."""
    current, ran = [0], []

    @contextmanager
    def on(device: torch.device) -> Any:
        before, current[0] = current[0], device.index
        yield
        current[0] = before

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda *_, **__: ran.append(current[0])

    class OnGpu(torch.Tensor):
        device = torch.device("cuda", 1)

    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[0])
    monkeypatch.setattr(torch.cuda, "device", on)
    first, second = torch.zeros(2), torch.zeros(2).as_subclass(OnGpu)
    launch.launch(Kernel(), (1,), 3, first)
    launch.launch(Kernel(), (1,), 3, second)
    assert ran == [0, 1] and current == [0]
