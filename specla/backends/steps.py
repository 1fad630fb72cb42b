"""How the kernels of a forward step are made to run: one by one, or as a whole."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from specla.core.lifecycle import Progress
from specla.core.plan import CommitPlan, StepPlan


class StepRunner:
    """Runs each kernel as it is called: right for every backend."""

    whole = False
    """Whether the kernels of a step run when all of its calls are made, so that what happens
    around a single call says nothing about the arrays."""
    rehearsals = 0
    """How often a step of each size must have run before it is as fast as it will be, beyond what
    ``prepare`` does."""

    @property
    def progress(self) -> Progress:
        """How far the last step of a runner with ``whole`` came."""
        return Progress.PARTIAL

    def forget(self) -> None:
        """Before anybody may ask how far the *next* step came: it is untouched."""

    def run(self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]) -> Any:
        """Make the kernel calls of a step and return what ``calls`` returns.

        A runner may remember the calls. Steps with the same ``key``, number of rows and number of
        sequences must therefore make the same calls with the same arrays, but for the plan's.
        """
        return calls()

    def prepare(self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]) -> None:
        """What the first ``run`` of such a step does beside its work; nothing is computed."""
