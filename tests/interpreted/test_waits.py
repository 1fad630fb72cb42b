"""How often the host waits for the device in a round of decoding: once, for the token ids."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402
from torch.overrides import TorchFunctionMode  # noqa: E402

from interpreted.recording import RecordingCapture, nothing  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.launch import launches_to  # noqa: E402
from specla.backends.triton.staging import Staging  # noqa: E402
from specla.core.topology import Tree  # noqa: E402
from specla.fuzz.tiny import tiny_target  # noqa: E402

pytestmark = MARKS

WAITING = ("cpu", "to", "item", "tolist", "__bool__", "__int__", "__float__", "__index__")
"""Operations for which the host needs a value of the device, or a copy that is made at once."""
SIBLINGS = Tree.build([1, 2, 3], [-1, 0, 0])


class Watch(TorchFunctionMode):
    """Writes down what makes the host wait where tensors are a GPU's."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[str] = []

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        keywords = keywords or {}
        name = getattr(function, "__name__", "")
        if name in WAITING or (name == "copy_" and not keywords.get("non_blocking")):
            self.waits.append(name)
        return function(*arguments, **keywords)


class Unwatched(Staging):
    """Its copies on the host don't count; test_packed_plans.py looks at the other half."""

    def copy(self, host: Any, target: Any) -> None:
        with torch._C.DisableTorchFunction():
            super().copy(host, target)


class NoKernels(TritonBackend):
    """Steps cost nothing and every token is 5."""

    def __init__(self, graphs: bool) -> None:
        super().__init__(graphs=graphs, capture=RecordingCapture(nothing) if graphs else None)
        self._staging = Unwatched(self.device)

    def argmax(self, logits: Any, out: Any) -> None:
        out.fill_(5)


@pytest.mark.parametrize("graphs", [True, False])
def test_one_wait_in_each_round(graphs: bool) -> None:
    """Steps that are called, captured and launched; siblings accepted; a page begun."""
    target = tiny_target(
        NoKernels(graphs),
        kind="Q8_0",
        features=(0,),
        slots=2,
        chunk=64,
        poison=False,
    )
    with launches_to(nothing):
        texts = [target.open() for _ in range(2)]
        for text in texts:
            target.prefill([(text, [1] * 60)])
        for _ in range(5):
            with Watch() as watch:
                verified = target.verify([(text, SIBLINGS) for text in texts])
                ids = target.argmax(verified)
                target.store.commit_all([(text, [0, 2]) for text in texts])
            assert watch.waits == ["cpu"] and ids.tolist() == [5] * 6
    assert [len(text.pages) for text in texts] == [2, 2]


def test_one_wait_for_several_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    """All copies are on their way before anybody waits, into memory that allows that."""
    backend = NoKernels(graphs=False)
    hosts = [np.arange(6, dtype=np.int32).reshape(2, 3), np.array([1.5, -0.0], np.float32)]
    arrays = [*map(backend.upload, hosts), torch.arange(8.0)[::2]]
    events: list[str] = []
    pinned = PinnedCopies(events)
    monkeypatch.setattr(torch, "empty", pinned.empty)
    stream = SimpleNamespace(synchronize=lambda: events.append("wait"))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream)
    backend.device = torch.device("cuda", 0)
    with pinned:
        found = backend.download_all(*arrays)
    assert events == ["pinned"] * 3 + ["copy"] * 3 + ["wait"]
    for host, copy in zip([*hosts, np.arange(0, 8, 2, np.float32)], found, strict=True):
        assert (copy.dtype, copy.shape, copy.tobytes()) == (host.dtype, host.shape, host.tobytes())


class PinnedCopies(TorchFunctionMode):
    """Writes down allocations of pinned memory and copies into it; any other way to the host is a
    mistake."""

    def __init__(self, events: list[str]) -> None:
        super().__init__()
        self._events, self._empty = events, torch.empty

    def empty(self, shape: Any, *, dtype: Any, pin_memory: bool) -> Any:
        assert pin_memory
        self._events.append("pinned")
        return self._empty(shape, dtype=dtype)

    def __torch_function__(
        self, function: Any, types: Any, arguments: Any = (), keywords: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        assert name not in WAITING
        if name == "copy_":
            assert keywords == {"non_blocking": True}
            self._events.append("copy")
        return function(*arguments, **(keywords or {}))


def test_the_watch_sees_copies_that_wait() -> None:
    backend = NoKernels(graphs=False)
    target = backend.zeros((4,), "int32")
    with Watch() as watch:
        backend.upload(np.zeros(4, dtype=np.int32), into=target)
        assert watch.waits == []
        target.copy_(torch.zeros(4))
        bool(target[0] == 0)
    assert watch.waits == ["copy_", "__bool__"]
