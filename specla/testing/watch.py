"""Calls of code under test: timed, and given up when they don't return."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter
from typing import Any, TypeVar

from specla.testing.errors import ConformanceError

T = TypeVar("T")


@dataclass(frozen=True)
class SlowCall:
    """A call that took longer than asked for, and returned."""

    hook: str
    seconds: float


class Watch:
    """Makes calls on one thread of its own and remembers how they went.

    seconds_per_call: longer calls are noted in ``slow``.  hang_seconds: longer ones fail; None
    calls directly, on the caller's thread, and waits for ever.
    calls, candidates: how many were made, and proposed.
    failure: of the first call that failed or hung, to be raised again by who drove the engine,
    which survives failing adapters.
    """

    def __init__(self, seconds_per_call: float, hang_seconds: float | None) -> None:
        self.seconds_per_call, self.hang_seconds = seconds_per_call, hang_seconds
        self.slow: list[SlowCall] = []
        self.calls = 0
        self.candidates = 0
        self.failure: ConformanceError | None = None
        self._worker: _Worker | None = None
        self._hung: ConformanceError | None = None

    def call(self, hook: str, function: Callable[[], T]) -> T:
        """Raises ConformanceError for a call that raises or hangs."""
        if self._hung is not None:
            raise self._hung
        self.calls += 1
        start = perf_counter()
        try:
            return self._run(hook, function)
        except ConformanceError as error:
            self.failure = self.failure or error
            raise
        finally:
            seconds = perf_counter() - start
            if seconds > self.seconds_per_call:
                self.slow.append(SlowCall(hook, seconds))

    def check(self) -> None:
        """Raise the first failure, if there was one."""
        if self.failure is not None:
            raise self.failure

    def _run(self, hook: str, function: Callable[[], T]) -> T:
        if self.hang_seconds is None:
            return _shielded(hook, function, KeyboardInterrupt)
        self._worker = self._worker or _Worker()
        try:
            return self._worker.run(lambda: _shielded(hook, function), self.hang_seconds)
        except queue.Empty:
            self._hung = ConformanceError(
                "time",
                expected=f"{hook} to return within {self.hang_seconds:g} s",
                found="that it didn't",
                remedy="Find what it waits for; hang_seconds allows more time, None disables this.",
            )
            raise self._hung from None


def _shielded(hook: str, function: Callable[[], T], *passing: type[BaseException]) -> T:
    """passing: what is not the adapter's. The user's interrupt reaches the main thread only."""
    try:
        return function()
    except ConformanceError:
        raise
    except BaseException as error:
        if isinstance(error, passing):
            raise
        text = " ".join(str(error).split())
        raise ConformanceError(
            "exceptions",
            expected=f"{hook} to return",
            found=f"{type(error).__name__}: {text}",
            remedy="See the cause below; where there is no guess, return an empty Proposal.",
        ) from error


class _Worker:
    """One daemon thread: adapters may tie things to the thread they were made on."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()
        self._results: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name="adapter under test", daemon=True).start()

    def _loop(self) -> None:
        while True:
            job = self._jobs.get()
            try:
                self._results.put((job(), None))
            except BaseException as error:
                self._results.put((None, error))

    def run(self, job: Callable[[], T], timeout: float) -> T:
        """Raises queue.Empty when it takes longer; the worker is useless then."""
        self._jobs.put(job)
        value, error = self._results.get(timeout=timeout)
        if error is not None:
            raise error
        result: T = value
        return result
