"""Forward steps as recorded programs: a step runner of the compiled CPU backend."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any

from specla.backends.numba.program import Program
from specla.backends.steps import StepRunner
from specla.core.lifecycle import Progress
from specla.core.plan import CommitPlan, StepPlan

if TYPE_CHECKING:
    from specla.backends.numba.backend import NumbaBackend

KEPT = 64
"""Programs kept: one for each number of rows and sequences that lately occurred."""


class RecordedSteps(StepRunner):
    """Records a step's calls the first time and walks them from then on."""

    whole = True

    def __init__(self, backend: NumbaBackend) -> None:
        self._backend = backend
        self._programs: OrderedDict[Hashable, Program] = OrderedDict()
        self._current: Program | None = None

    @property
    def progress(self) -> Progress:
        return Progress.UNTOUCHED if self._current is None else self._current.progress

    def forget(self) -> None:
        self._current = None

    def run(self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]) -> Any:
        self.forget()
        program = self._program(key, plan, calls)
        program.reset()
        self._current = program
        program.run(plan, self._backend.team)
        return program.result

    def prepare(self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]) -> None:
        self._program(key, plan, calls)

    def _program(
        self, key: Hashable, plan: StepPlan | CommitPlan, calls: Callable[[], Any]
    ) -> Program:
        key = (key, plan.n_rows, plan.n_sequences)
        program = self._programs.get(key)
        if program is None:
            program = Program(plan)
            with self._backend.recording(program):
                program.result = calls()
            program.build()
            self._programs[key] = program
            if len(self._programs) > KEPT:
                self._programs.popitem(last=False)
        self._programs.move_to_end(key)
        return program
