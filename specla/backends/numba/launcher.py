"""Where kernel calls go: to the threads at once, or to a program that is being recorded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

from specla.backends.numba.jit import Kernel
from specla.backends.numba.program import CallList, Program
from specla.backends.numba.threads import Team

SHARED_STATE = 1 << 16
"""Entries of state walked, from which the recurrence is cut over threads."""
SHARED_ENTRIES = 1 << 14
"""Entries from which a norm, a convolution or an elementwise kernel is cut over threads."""
SHARED_QUERIES = 1 << 11
"""Entries of all queries, from which attention is cut over threads."""


def three(x: Any) -> Any:
    """[N, D] as [N, 1, D]."""
    return x if x.ndim == 3 else x[:, None, :]


def units(x: Any) -> int:
    """Rows by heads of x [N, H, D]."""
    return int(x.shape[0] * x.shape[1])


def large(x: Any) -> bool:
    """Whether a kernel that passes over x is worth more than one thread."""
    return int(x.size) >= SHARED_ENTRIES


class Launcher:
    """Runs kernels on ``threads`` threads, or records them: what a backend's methods call."""

    def __init__(self, threads: int) -> None:
        self.team = Team(threads)
        self._recorder = threading.local()

    @property
    def threads(self) -> int:
        """Threads that share the large kernels."""
        return self.team.threads

    @contextmanager
    def recording(self, program: Program) -> Iterator[None]:
        """Within it, this thread's kernel calls go to ``program`` and don't run."""
        self._recorder.program = program
        try:
            yield
        finally:
            self._recorder.program = None

    def _launch(self, kernel: Kernel, units: int, *arguments: Any, share: bool = False) -> None:
        """Run a kernel or record it. share: worth more than one thread."""
        program: Program | None = getattr(self._recorder, "program", None)
        if program is not None:
            program.add(kernel, units, arguments, share)
            return
        calls = CallList()
        calls.add(kernel, units, arguments, share)
        calls.build()
        calls.run(self.team, at_once=1)

    def _rows(self, kernel: Kernel, shape: tuple[int, ...], *arguments: Any) -> None:
        """Launch a kernel whose units are the rows of arrays of a shape."""
        self._launch(kernel, shape[0], *arguments, share=prod(shape) >= SHARED_ENTRIES)

    def _call(self, function: Callable[..., None], *arguments: Any) -> None:
        """Call a Python function or record it."""
        program: Program | None = getattr(self._recorder, "program", None)
        if program is None:
            function(*arguments)
        else:
            program.add_function(function, arguments)
