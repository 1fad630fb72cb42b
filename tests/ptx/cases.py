"""The kernel cases that launch something on the Triton backend, and what they launch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from ptx.compile import Launch, describe
from ptx.run import emulated
from specla.backends.base import Backend
from specla.backends.triton.backend import TritonBackend
from specla.errors import SpeclaError
from specla.testing.arrays import MOODS
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench, Case

EXAMPLES = 5
"""Calls of each case: one in each mood. Every new shape is another compilation."""


def triton_backend() -> TritonBackend:
    """On host tensors; its launches must be taken by someone (``ptx.run.emulated``)."""
    # some of the protocol may not be written yet: what is there can be tested
    kind: Any = type("HostTriton", (TritonBackend,), {})
    kind.__abstractmethods__ = frozenset()
    backend: TritonBackend = kind(device=torch.device("cpu"))
    return backend


class Recorder:
    """Takes launches and runs none: outputs stay as they were."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def __call__(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        arguments: tuple[Any, ...],
        options: dict[str, Any],
        meta: dict[str, Any],
    ) -> None:
        self.launches.append(describe(kernel, arguments, meta, options)[0])


def recorded(case: Case, name: str, examples: int = EXAMPLES) -> list[Launch]:
    """What a case launches, in order."""
    recorder = Recorder()
    with emulated(recorder):
        for example in range(examples):
            rng = np.random.default_rng([example, *name.encode()])
            case(Bench(triton_backend(), rng, MOODS[example % len(MOODS)]))
    return recorder.launches


def implemented(name: str) -> bool:
    """Whether the backend has a method of its own; arrays' views and such have none."""
    return getattr(TritonBackend, name, None) not in (None, getattr(Backend, name, None))


def launching_cases() -> dict[str, Case]:
    """Cases by name: those of methods that the backend implements and that launch a kernel."""
    found = {}
    for name, case in kernel_cases.cases.items():
        try:
            launches = recorded(case, name, examples=1)
        except (AttributeError, TypeError, NotImplementedError, SpeclaError):
            # needs a part of the protocol that is not written yet
            if implemented(name):
                raise
            continue
        if launches:
            found[name] = case
    return found
