"""Worker threads that help the caller to walk a list of kernel calls (walker.py).

Plain Python threads, asleep between calls; the walk itself runs without Python's lock. How many
there are can't be seen in any bit, since every unit writes its own memory.
"""

from __future__ import annotations

import os
import threading
import weakref
from queue import SimpleQueue

import numpy as np

from specla.backends.numba import walker
from specla.backends.numba.arguments import Words, address_of

Job = tuple[Words, Words, Words, int, int]
"""calls, counters, gates, threads, which worker."""


class Team:
    """``threads - 1`` workers and whoever calls :meth:`walk`; a second caller at the same time gets
    no help, and neither does one in a forked process, which has no workers.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._jobs: list[SimpleQueue[Job | None]] = [SimpleQueue() for _ in range(threads - 1)]
        # not a lock of Python's, which an interrupt could leave taken
        self._busy = np.zeros(1, np.int64)
        self._process = os.getpid()
        for jobs in self._jobs:
            threading.Thread(
                target=_serve, args=(jobs,), name="specla kernels", daemon=True
            ).start()
        self._finalizer = weakref.finalize(self, _stop, self._jobs)

    def walk(self, calls: Words, counters: Words, progress: Words) -> None:
        """Make all calls [n, 4], in order. counters [n, 16], progress [2]: of this walk alone.

        Raises MemoryError if a kernel found no memory for its scratch.
        """
        threads = self.threads
        if self._process != os.getpid() or self._busy[0]:
            threads = 1
        # new for each walk: a worker that comes too late finds itself locked out
        gates = np.zeros(threads + 1, np.int64)
        if threads > 1:
            walker.help_out()  # compiled here, not by several workers at once
            counters.fill(0)
            for me, jobs in enumerate(self._jobs):
                jobs.put((calls, counters, gates, threads, me))
        failures = walker.lead()(
            address_of(calls),
            address_of(counters),
            len(calls),
            address_of(gates),
            threads,
            address_of(self._busy),
            address_of(progress),
        )
        if failures:
            raise MemoryError("no memory for a kernel's scratch")


def _serve(jobs: SimpleQueue[Job | None]) -> None:
    while (job := jobs.get()) is not None:
        calls, counters, gates, threads, me = job
        walker.help_out()(
            address_of(calls), address_of(counters), len(calls), address_of(gates), threads, me
        )
        del job, calls, counters, gates


def _stop(jobs: list[SimpleQueue[Job | None]]) -> None:
    for queue in jobs:
        queue.put(None)
