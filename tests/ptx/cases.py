"""The kernel cases that launch something on the Triton backend, and what they launch."""

from __future__ import annotations

import numpy as np
import torch

from ptx.compile import Launch, describe
from ptx.run import emulated
from specla.backends.triton import launch
from specla.backends.triton.backend import TritonBackend
from specla.testing.arrays import MOODS
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench, Case

EXAMPLES = 5
"""Calls of each case: one in each mood. Every new shape is another compilation."""


def triton_backend() -> TritonBackend:
    """On host tensors; its launches must be taken by someone (``ptx.run.emulated``)."""
    return TritonBackend(torch.device("cpu"))


class Recorder:
    """Takes launches and runs none: outputs stay as they were."""

    def __init__(self) -> None:
        self.launches: list[Launch] = []

    def __call__(self, asked: launch.Launch) -> None:
        found, _ = describe(asked.kernel, asked.arguments, asked.meta, asked.options)
        self.launches.append(found)


def recorded(case: Case, name: str, examples: int = EXAMPLES) -> list[Launch]:
    """What a case launches, in order."""
    recorder = Recorder()
    with emulated(recorder):
        for example in range(examples):
            rng = np.random.default_rng([example, *name.encode()])
            case(Bench(triton_backend(), rng, MOODS[example % len(MOODS)]))
    return recorder.launches


def launching_cases() -> dict[str, Case]:
    """Cases by name: those that launch a kernel; arrays are torch's own business."""
    cases = kernel_cases.cases
    return {name: case for name, case in cases.items() if recorded(case, name, examples=1)}
