"""The GPU backend with the reference's kernels: steps take milliseconds, so many can be played.

Arrays are torch's, plans are packed and padded, and every kernel is a launch like any other, which
a RecordingCapture records; but what is launched is the NumPy backend's kernel on the same memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass, replace
from typing import Any

import torch

from specla.backends.base import Weight
from specla.backends.compositions import COMPOSITIONS, Compositions
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.triton.backend import TritonBackend
from specla.backends.triton.launch import launch
from specla.backends.weights import WeightSource
from specla.core.plan import CommitPlan, StepPlan
from specla.fuzz.failing import KERNELS

REFERENCE = NumpyBackend()


class ReferenceKernels(TritonBackend):
    """Options are TritonBackend's."""

    boundaries = NumpyBackend.boundaries

    def load(self, source: WeightSource) -> Weight:
        return REFERENCE.load(source)


def _method(name: str) -> Callable[..., None]:
    def method(self: ReferenceKernels, *arguments: Any) -> None:
        launch(_Kernel(name), (1,), *arguments)

    return method


for _name in KERNELS:
    setattr(ReferenceKernels, _name, _method(_name))
for _name in COMPOSITIONS:
    # never fused: kernels one after another
    setattr(ReferenceKernels, _name, getattr(Compositions, _name))


class _Kernel:
    """Called like a kernel of Triton's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return lambda *arguments, **_: self._run(arguments)

    def _run(self, arguments: Any) -> None:
        """Only for the rows that there are, as kernels see them that know of a plan."""
        plans = [x for x in arguments if isinstance(x, StepPlan)]
        host = [_host(x) for x in arguments]
        if plans:
            padded, real = plans[0].n_rows, int(plans[0].counts[0])
            host = [x[:real] if _has_rows(x, padded) else x for x in host]
        getattr(REFERENCE, self._name)(*host)


def _has_rows(x: Any, rows: int) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype") and x.shape[0] == rows


def _host(x: Any) -> Any:
    """NumPy arrays on the same memory."""
    if isinstance(x, torch.Tensor):
        return x.numpy()
    if isinstance(x, type) or not is_dataclass(x) or isinstance(x, Weight):
        return x
    found = replace(x, **{field.name: _host(getattr(x, field.name)) for field in fields(x)})
    if isinstance(found, StepPlan):
        return _real_step(found)
    return _real_commit(found) if isinstance(found, CommitPlan) else found


def _real_step(plan: StepPlan) -> StepPlan:
    n, _, chains, waves = plan.counts.tolist()
    lengths = {"chain_offset": chains + 1, "wave_offset": waves + 1}
    lengths |= dict.fromkeys(("chain_sequence", "chain_source"), chains)
    rows = ("tokens", "sequence", "parent", "position", "kv_row", "path_start")
    lengths |= dict.fromkeys((*rows, "chain_rows", "boundary_of_row"), n)
    return replace(plan, n_rows=n, **{k: getattr(plan, k)[:size] for k, size in lengths.items()})


def _real_commit(plan: CommitPlan) -> CommitPlan:
    nodes, moves = int(plan.node_offset[-1]), int(plan.move_offset[-1])
    return replace(
        plan,
        n_rows=nodes,
        nodes=plan.nodes[:nodes],
        move_from=plan.move_from[:moves],
        move_to=plan.move_to[:moves],
    )
