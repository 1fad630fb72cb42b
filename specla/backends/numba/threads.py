"""Workers that share a kernel's units of work with the calling thread.

Kernels release the interpreter's lock, so plain Python threads run them side by side. Units are
cut into equal runs, and waiting threads sleep: where spinning threads (OpenMP) lose whole time
slices to a busy neighbour, here a call merely takes longer. How many threads there are can't be
seen in any bit, since every unit writes its own memory.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

from specla.backends.numba.jit import Kernel
from specla.errors import OptionError

VARIABLE = "SPECLA_THREADS"
MOST = 256


def choose_threads(wanted: int | None = None) -> int:
    """Threads to use: ``wanted``, else the environment's, else one.

    One, because small models lose by sharing: on the bundled one, two threads speculate at 0.5 to
    1.0 times the speed of one (docs/benchmarks.md).

    Raises OptionError unless it is a number 1..256.
    """
    given: Any = os.environ.get(VARIABLE) if wanted is None else wanted
    if given in (None, ""):
        return 1
    try:
        count = int(given)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= MOST:
        raise OptionError(f"threads is {given!r}; it must be a whole number 1..{MOST}")
    return count


class _Worker:
    """One thread with one job at a time."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None] = SimpleQueue()
        self._done: SimpleQueue[BaseException | None] = SimpleQueue()
        threading.Thread(
            target=_serve, args=(self._jobs, self._done), name="specla kernels", daemon=True
        ).start()

    def start(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._jobs.put((function, arguments))

    def wait(self) -> BaseException | None:
        return self._done.get()

    def stop(self) -> None:
        self._jobs.put(None)


def _serve(
    jobs: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]] | None],
    done: SimpleQueue[BaseException | None],
) -> None:
    while (job := jobs.get()) is not None:
        function, arguments = job
        failure: BaseException | None = None
        try:
            function(*arguments)
        except BaseException as error:  # handed to the caller
            failure = error
        del job, function, arguments
        done.put(failure)


class Team:
    """``threads - 1`` workers and whoever calls :meth:`run`; a second caller at the same time gets
    no help. A process that forks must make a new one.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._workers = [_Worker() for _ in range(threads - 1)]
        self._free = threading.Lock()
        self._finalizer = weakref.finalize(self, _stop, self._workers)

    def run(self, kernel: Callable[..., Any], units: int, *arguments: Any, share: bool) -> None:
        """``kernel(*arguments, first, last)`` over all units. share: worth more than one thread."""
        # once, before several threads would each do it
        function = kernel.ready if isinstance(kernel, Kernel) else kernel
        count = min(self.threads, units) if share else 1
        if count <= 1 or not self._free.acquire(blocking=False):
            function(*arguments, 0, units)
            return
        try:
            self._run_together(function, [units * i // count for i in range(count + 1)], arguments)
        finally:
            self._free.release()

    def _run_together(
        self, function: Callable[..., Any], cuts: list[int], arguments: tuple[Any, ...]
    ) -> None:
        helpers = self._workers[: len(cuts) - 2]
        for worker, first, last in zip(helpers, cuts[1:], cuts[2:], strict=False):
            worker.start(function, (*arguments, first, last))
        failures = []
        try:
            function(*arguments, cuts[0], cuts[1])
        finally:
            failures = [worker.wait() for worker in helpers]
        for failure in failures:
            if failure is not None:
                raise failure


def _stop(workers: list[_Worker]) -> None:
    for worker in workers:
        worker.stop()
