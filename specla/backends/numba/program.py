"""Kernel calls as data: made at once, or recorded in a program that is walked again and again.

A step of the same shape makes the same calls on the same buffers; only the plan's arrays are
other ones. So a program is recorded from one pass of the model's Python code, and later steps
exchange the plan's descriptors and walk it (walker.py): no Python between two kernels.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from specla.backends.numba.arguments import Blocks, Words, address_of, describe
from specla.backends.numba.jit import Kernel
from specla.backends.numba.threads import Team
from specla.backends.numba.walker import CALL_WORDS, COUNTER_WORDS
from specla.core.lifecycle import Progress
from specla.core.plan import CommitPlan, StepPlan


def plan_arrays(plan: StepPlan | CommitPlan) -> dict[str, Any]:
    """The arrays of a plan by name."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


LONG_STEP = 32
"""Rows from which a step may take so long that an interrupt should be heard within it."""
SLICE = 64
"""Calls walked at once in such a step: Python hears of interrupts only in between."""


class CallList:
    """Calls in the walker's form, with everything that they point to."""

    def __init__(self) -> None:
        self._calls: list[tuple[Kernel, int, tuple[Any, ...], bool]] = []
        self._kept: list[Any] = []
        self._words: Words
        self._rows: Words
        self._counters: Words
        self._progress = np.zeros(2, np.int64)

    def add(self, kernel: Kernel, units: int, arguments: tuple[Any, ...], share: bool) -> None:
        """One more call. share: worth more than one thread."""
        if units:
            self._calls.append((kernel, units, arguments, share))

    def build(self, watched: dict[str, Any] | None = None) -> dict[str, Words]:
        """To be done once, after the last ``add``. Returns the descriptors of watched arrays."""
        blocks = Blocks()
        starts = [blocks.add(kernel.layout, arguments) for kernel, _, arguments, _ in self._calls]
        self._words = blocks.build()
        base = address_of(self._words)
        rows = [
            (kernel.address, base + 8 * start, units, int(share and units > 1))
            for start, (kernel, units, _, share) in zip(starts, self._calls, strict=True)
        ]
        self._rows = np.array(rows, np.int64).reshape(-1, CALL_WORDS)
        self._counters = np.empty((len(rows), COUNTER_WORDS), np.int64)
        found = {}
        for name, array in (watched or {}).items():
            place = blocks.place_of(array)
            if place is not None:
                found[name] = self._words[place : place + 1 + 2 * array.ndim]
        # views share few buffers, so keep those and not each view
        arrays = [a for call in self._calls for a in call[2] if isinstance(a, np.ndarray)]
        owners = [a if a.base is None else a.base for a in arrays]
        self._kept = list({id(owner): owner for owner in owners}.values())
        self._calls.clear()
        return found

    @property
    def progress(self) -> Progress:
        """How far the calls have come since the last :meth:`reset`."""
        if not self._progress[0] and len(self._rows):
            return Progress.UNTOUCHED
        return Progress.DONE if self._progress[1] == len(self._rows) else Progress.PARTIAL

    def reset(self) -> None:
        """Forget how far they came."""
        self._progress.fill(0)

    def run(self, team: Team, at_once: int) -> None:
        """Make all calls in order, at most ``at_once`` without a look at Python."""
        for start in range(0, len(self._rows), at_once):
            part = slice(start, start + at_once)
            team.walk(self._rows[part], self._counters[part], self._progress)


class Program:
    """A recorded step: kernels, and now and then a Python function of the plan between them."""

    def __init__(self, plan: StepPlan | CommitPlan) -> None:
        self._arrays = plan_arrays(plan)
        self._names = {id(array): name for name, array in self._arrays.items()}
        self._plan = plan
        self._parts: list[CallList | Callable[[StepPlan | CommitPlan], None]] = []
        self._exchanged: list[tuple[str, Words]] = []
        self.result: Any = None

    def add(self, kernel: Kernel, units: int, arguments: tuple[Any, ...], share: bool) -> None:
        """Record a kernel."""
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, CallList):
            last = CallList()
            self._parts.append(last)
        last.add(kernel, units, arguments, share)

    def add_function(self, function: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        """Record a Python function, called with the plan and the plan's arrays of that step."""
        names = self._names

        def call(plan: StepPlan | CommitPlan) -> None:
            function(
                *(
                    plan
                    if value is self._plan
                    else getattr(plan, names[id(value)])
                    if id(value) in names
                    else value
                    for value in arguments
                )
            )

        self._parts.append(call)

    def build(self) -> None:
        """To be done once, after the last call."""
        for part in self._lists:
            self._exchanged += part.build(self._arrays).items()

    @property
    def _lists(self) -> list[CallList]:
        return [part for part in self._parts if isinstance(part, CallList)]

    @property
    def progress(self) -> Progress:
        """How far the last run came. Python functions don't count: they touch no durable state."""
        each = {part.progress for part in self._lists}
        return each.pop() if len(each) == 1 else Progress.PARTIAL

    def reset(self) -> None:
        """Forget how far the last run came."""
        for part in self._lists:
            part.reset()

    def run(self, plan: StepPlan | CommitPlan, team: Team) -> None:
        """Walk it with another plan of the same number of rows and sequences."""
        for name, descriptor in self._exchanged:
            array = getattr(plan, name)
            descriptor[:] = describe(array)
        at_once = SLICE if plan.n_rows >= LONG_STEP else sys.maxsize
        for part in self._parts:
            if isinstance(part, CallList):
                part.run(team, at_once)
            else:
                part(plan)
