"""Launches for more rows than there are: the rest must leave no trace (StepPlan.counts)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ptx.needs import need_compiler

need_compiler()

import torch  # noqa: E402

from ptx.run import EmulatedLauncher, emulated  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.core.plan import StepPlan  # noqa: E402
from specla.testing.kernels import kernel_cases  # noqa: E402
from specla.testing.kernels.bench import compare  # noqa: E402

pytestmark = pytest.mark.triton

MORE = 3
BY_ROW = ("tokens", "sequence", "position", "kv_row", "path_start", "chain_rows", "boundary_of_row")


def _longer(array: Any, fill: float) -> Any:
    rest = torch.full((MORE, *array.shape[1:]), fill, dtype=array.dtype)
    return torch.cat([array, rest])


def _padded(plan: StepPlan) -> StepPlan:
    """As a captured step is launched: harmless rows at the end, the true counts."""
    arrays = {name: _longer(getattr(plan, name), 0) for name in BY_ROW}
    return replace(plan, **arrays, parent=_longer(plan.parent, -1), n_rows=plan.n_rows + MORE)


class _Padding(TritonBackend):
    """Hands longer plans and NaN rows to the kernels."""


def _padding(name: str) -> Any:
    def method(self: _Padding, *arguments: Any) -> None:
        (plan,) = [a for a in arguments if isinstance(a, StepPlan)]
        longer, outputs = [], []
        for argument in arguments:
            if isinstance(argument, torch.Tensor) and argument.shape[0] == plan.n_rows:
                longer.append(_longer(argument, float("nan")))
                outputs.append((argument, longer[-1]))
            else:
                longer.append(_padded(plan) if argument is plan else argument)
        getattr(super(_Padding, self), name)(*longer)
        for given, longer_one in outputs:
            given.copy_(longer_one[: plan.n_rows])

    return method


NAMES = ("conv_verify", "gdn_verify", "attention", "kv_write", "kv_append", "feature_write")
for _name in NAMES:
    setattr(_Padding, _name, _padding(_name))


@pytest.mark.parametrize("name", NAMES)
def test_rows_that_are_none_leave_no_trace(name: str) -> None:
    with emulated(EmulatedLauncher()):
        compare(name, kernel_cases.cases[name], _Padding("cpu"), NumpyBackend(), 3)
