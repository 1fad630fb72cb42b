"""Executes a program: blocks in chunks, their threads in lockstep, control flow as it comes.

Threads that branch apart form groups, each with its own place in the code. The group that is
furthest behind runs until it meets another or passes it: loops and conditionals then join by
themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from ptx.errors import PtxError
from ptx.lanes import WARP, Lanes
from ptx.memory import Memory
from ptx.ops import Operation, operation_of
from ptx.parse import Instruction, Label, Program
from ptx.scalars import Array

LANES = 4096
"""Threads that run side by side: enough that NumPy's cost per operation hardly shows."""
STEPS = 2_000_000


class Machine:
    """A program, ready to run. shared: bytes of shared memory that a launch adds."""

    def __init__(self, program: Program, shared: int = 0) -> None:
        self.program = program
        self.shared = max(program.shared, shared)
        self._operations: list[Operation | None] = [
            None if code.name in ("bra", "ret", "exit", "bar") else operation_of(code)
            for code in program.code
        ]

    def run(
        self,
        grid: tuple[int, int, int],
        arguments: Sequence[int],
        memory: Memory,
        lanes_at_once: int = LANES,
    ) -> int:
        """Run all blocks; returns how many instructions were executed, each for many threads.

        arguments: bits of each parameter. Raises PtxError.
        """
        names = [name for name, _ in self.program.parameters]
        if len(names) != len(arguments):
            raise PtxError(f"{len(arguments)} arguments for {len(names)} parameters")
        parameters = dict(zip(names, arguments, strict=True))
        ids = np.array([at[::-1] for at in itertools.product(*map(range, grid[::-1]))], np.int64)
        together = max(1, lanes_at_once // self.program.threads)
        steps = 0
        for start in range(0, len(ids), together):
            blocks = ids[start : start + together]
            threads = self.program.threads
            lanes = Lanes(blocks, grid, threads, self.shared, memory, parameters)
            with np.errstate(all="ignore"):
                steps += self._execute(lanes)
        return steps

    def _execute(self, lanes: Lanes) -> int:
        """groups: place in the code -> threads that are there. All threads: None."""
        groups: dict[int, Array] = {0: np.ones(lanes.count, np.bool_)}
        steps = 0
        while groups:
            place = min(groups)
            here = groups.pop(place)
            everybody: Array | None = None if here.all() else here
            stop = min(groups, default=len(self.program.code))
            # alone up to the place of the next group
            while place < stop:
                steps += 1
                if steps > STEPS:
                    raise PtxError(f"{self.program.name}: no end after {STEPS} steps")
                code, operation = self.program.code[place], self._operations[place]
                place += 1
                if operation is None:
                    moved = self._control(code, lanes, here, groups, place)
                    if moved:
                        break
                    continue
                lanes.active = _both(everybody, code, lanes)
                if lanes.active is None or lanes.active.any():
                    _run(operation, code, lanes)
            else:
                if place >= len(self.program.code):
                    raise PtxError(f"{self.program.name} ends without ret")
                _join(groups, place, here)
        return steps

    def _control(
        self, code: Instruction, lanes: Lanes, here: Array, groups: dict[int, Array], following: int
    ) -> bool:
        """A branch, an end or a barrier; True if the group was put elsewhere."""
        if code.name == "bar":
            lanes.active = None if here.all() else here
            lanes.whole(code, WARP if code.modifiers[0] == "warp" else lanes.threads)
            return False
        taken = here
        if code.guard is not None:
            taken = here & (lanes.predicate(code.guard) ^ code.negated)
            if not taken.any():
                return False
        if code.name == "bra":
            (target,) = code.operands
            assert isinstance(target, Label)
            _join(groups, self.program.labels[target.name], taken)
        left = here & ~taken
        if left.any():
            _join(groups, following, left)
        return True


def _join(groups: dict[int, Array], place: int, threads: Array) -> None:
    groups[place] = groups[place] | threads if place in groups else threads


def _both(everybody: Array | None, code: Instruction, lanes: Lanes) -> Array | None:
    """Those of a group that the instruction's guard lets take part."""
    if code.guard is None:
        return everybody
    guard = lanes.predicate(code.guard)
    if code.negated:
        guard = ~guard
    if everybody is not None:
        return guard & everybody
    return None if guard.all() else guard


def _run(operation: Operation, code: Instruction, lanes: Lanes) -> None:
    try:
        operation(lanes, code)
    except PtxError as error:
        if code.text in str(error):
            raise
        raise type(error)(f"{error}, in {code.text!r}") from None
