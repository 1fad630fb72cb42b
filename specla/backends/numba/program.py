"""Kernel calls as data: made at once, or recorded in a program that is walked again and again.

A step of the same shape makes the same calls on the same buffers; only the plan's arrays are
other ones. So a program is recorded from one pass of the model's Python code, and later steps
exchange the plan's descriptors and walk it (walker.py): no Python between two kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np

from specla.backends.numba.arguments import Words, address_of, describe
from specla.backends.numba.jit import Kernel
from specla.backends.numba.threads import Team
from specla.backends.numba.walker import CALL_WORDS, COUNTER_WORDS, DONE, UNTOUCHED
from specla.core.lifecycle import Progress
from specla.core.plan import StepPlan


def plan_arrays(plan: StepPlan) -> dict[str, Any]:
    """The arrays of a plan by name."""
    values = {field.name: getattr(plan, field.name) for field in fields(plan)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


class CallList:
    """Calls in the walker's form, with everything that they point to."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []
        self._blocks: list[Words] = []
        self._descriptors: dict[int, tuple[Any, Words]] = {}
        self._final: tuple[Words, Words] | None = None
        self.mark = np.zeros(1, np.int64)

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, kernel: Kernel, units: int, arguments: tuple[Any, ...], share: bool) -> None:
        """One more call. share: worth more than one thread."""
        if not units:
            return
        block = kernel.layout.words(arguments, self._place)
        self._blocks.append(block)
        self._rows.append((kernel.address, address_of(block), units, int(share and units > 1)))

    def _place(self, array: Any) -> int:
        # the array is kept, so its id stays its own
        if id(array) not in self._descriptors:
            self._descriptors[id(array)] = array, describe(array)
        return address_of(self._descriptors[id(array)][1])

    def descriptor(self, array: Any) -> Words | None:
        """The descriptor that stands for ``array``, if any call uses it."""
        entry = self._descriptors.get(id(array))
        return None if entry is None else entry[1]

    def run(self, team: Team) -> None:
        """Make all calls in order."""
        if not self._rows:
            return
        if self._final is None:
            calls = np.array(self._rows, np.int64).reshape(-1, CALL_WORDS)
            self._final = calls, np.empty((len(calls), COUNTER_WORDS), np.int64)
        team.walk(*self._final, self.mark)


class Program:
    """A recorded step: kernels, and now and then a Python function of the plan between them."""

    def __init__(self, plan: StepPlan) -> None:
        self._arrays = plan_arrays(plan)
        self._plan = plan
        self._parts: list[CallList | Callable[[StepPlan], None]] = []
        self._exchanged: list[tuple[str, Words]] | None = None
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
        names = {id(array): name for name, array in self._arrays.items()}

        def call(plan: StepPlan) -> None:
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

    def reset(self) -> None:
        """Forget how far the last run came."""
        for part in self._parts:
            if isinstance(part, CallList):
                part.mark[0] = UNTOUCHED

    def run(self, plan: StepPlan, team: Team) -> None:
        """Walk it with another plan of the same number of rows and sequences."""
        if self._exchanged is None:
            self._exchanged = self._descriptors()
        for name, descriptor in self._exchanged:
            array = getattr(plan, name)
            descriptor[0] = address_of(array)
            descriptor[1 : 1 + array.ndim] = array.shape
            descriptor[1 + array.ndim :] = array.strides
        for part in self._parts:
            if isinstance(part, CallList):
                part.run(team)
            else:
                part(plan)

    @property
    def progress(self) -> Progress:
        """How far the last run came. Python functions don't count: they touch no durable state."""
        marks = [int(part.mark[0]) for part in self._parts if isinstance(part, CallList)]
        if not any(marks):
            return Progress.UNTOUCHED
        return Progress.DONE if all(mark == DONE for mark in marks) else Progress.PARTIAL

    def _descriptors(self) -> list[tuple[str, Words]]:
        found = []
        for part in self._parts:
            for name, array in self._arrays.items():
                if isinstance(part, CallList):
                    descriptor = part.descriptor(array)
                    if descriptor is not None:
                        found.append((name, descriptor))
        return found
