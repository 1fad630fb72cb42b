"""The timer of benchmarks/gpu_check.py on a device that is played by objects of the test."""

from __future__ import annotations

import itertools
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
torch = pytest.importorskip("torch")
pytest.importorskip("triton.language")

from gpu.devices import gpu_device  # noqa: E402
from gpu.environment import environment  # noqa: E402
from gpu.parts import Clock, Findings, Setting  # noqa: E402
from gpu.sizes import TINY  # noqa: E402
from gpu.timing import Timer, cold_bytes  # noqa: E402

from specla.backends.triton import launch  # noqa: E402
from specla.errors import OptionError  # noqa: E402

pytestmark = pytest.mark.triton
WORDS = {"name": "Played", "major": 9, "minor": 0, "total_memory": 2**37}


class Device:
    """Notes what happens in order; events are 1, 2, 3, ... milliseconds apart."""

    def __init__(self, *, captures: bool = True) -> None:
        self.log: list[str] = []
        self.captures = captures
        self.clock = itertools.accumulate(itertools.count(1))
        self.CUDAGraph = lambda: SimpleNamespace(replay=lambda: self.log.append("replay"))
        self.Stream = lambda: SimpleNamespace(wait_stream=lambda other: None)
        self.Event = self._event

    def __getattr__(self, name: str) -> Any:
        return lambda *_: SimpleNamespace(wait_stream=lambda other: None)

    @contextmanager
    def graph(self, graph: Any) -> Any:
        self.log.append("begin")
        yield
        if not self.captures:
            raise RuntimeError("operation not permitted\nwhen stream is capturing")
        self.log.append("end")

    @contextmanager
    def stream(self, stream: Any) -> Any:
        yield

    def _event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=None)
        event.record = lambda: setattr(event, "at", next(self.clock))
        event.elapsed_time = lambda other: float(other.at - event.at)
        return event

    def is_available(self) -> bool:
        return True

    def device_count(self) -> int:
        return 2

    def get_device_properties(self, name: str) -> Any:
        return SimpleNamespace(**WORDS, multi_processor_count=132, L2_cache_size=2**28)


def play(monkeypatch: pytest.MonkeyPatch, device: Device) -> Device:
    monkeypatch.setattr(torch, "cuda", device)
    return device


def test_launches_are_captured_and_replays_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    device = play(monkeypatch, Device())
    timer = Timer(rehearsal=False, repeats=3)
    # events at 1, 3, 6, 10, 15, 21 milliseconds: runs of 2, 4 and 6
    assert timer.seconds("a kernel", lambda: device.log.append("launch")) == 4e-3
    assert device.log == ["launch", "launch", "begin", "launch", "end", *["replay"] * 4]
    assert not timer.eager


def test_what_cannot_be_captured_is_timed_as_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    device = play(monkeypatch, Device(captures=False))
    timer = Timer(rehearsal=False, repeats=3)
    assert timer.seconds("a kernel", lambda: device.log.append("launch")) == 4e-3
    assert device.log.count("launch") == 3 + 4 and "replay" not in device.log
    assert timer.eager == ["a kernel: operation not permitted when stream is capturing"]


def test_a_rehearsal_runs_once_and_tells_no_time() -> None:
    runs: list[int] = []
    assert Timer(rehearsal=True).seconds("a kernel", lambda: runs.append(1)) is None
    assert runs == [1]


def test_the_bandwidth_is_measured_once(monkeypatch: pytest.MonkeyPatch) -> None:
    device = play(monkeypatch, Device())
    timer = Timer(rehearsal=False, repeats=3)
    # memory comes from the host; the copy takes the 4 ms of the events
    for _ in range(2):
        assert timer.copy_bandwidth("cpu", 4096) == 2 * 4096 / 4e-3
    assert device.log == ["begin", "end", *["replay"] * 4]
    assert timer.copy_bandwidth("cpu", 8192) != 2 * 4096 / 4e-3


def test_the_device_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, Device())
    timer = Timer(rehearsal=False)
    # there is no memory on it to copy
    monkeypatch.setattr(timer, "copy_bandwidth", lambda device, size: float(size))
    findings = Findings()
    environment(Setting(TINY, "cuda:1", False, timer, Clock(60)), findings)
    assert findings.figures["copy_bandwidth"] == TINY.copy_bytes
    found = findings.figures["device"]
    assert (found["name"], found["architecture"]) == ("Played", "sm_90")
    assert cold_bytes("cuda:1") == 3 * 2**28


def test_only_devices_that_exist_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, Device())
    monkeypatch.setattr(launch, "INTERPRETED", False)
    assert gpu_device("cuda:1") == "cuda:1"
    with pytest.raises(OptionError, match=r"'cuda:7' .* isn't there; this machine has cuda:0"):
        gpu_device("cuda:7")
    monkeypatch.setattr(launch, "INTERPRETED", True)
    with pytest.raises(OptionError, match="unset it"):
        gpu_device("cuda:0")


def test_without_a_gpu_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "INTERPRETED", False)
    device = play(monkeypatch, Device())
    monkeypatch.setattr(device, "is_available", lambda: False, raising=False)
    with pytest.raises(OptionError, match=r"no GPU: torch finds none: .*--rehearse"):
        gpu_device("cuda:0")
