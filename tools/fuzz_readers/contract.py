"""The contract, and what breaks it: one run of a harness on one input.

Only a SpeclaError of one short line may come out; in a second of processor time; with no more
memory than twice the input and a constant.
"""

from __future__ import annotations

import time
import traceback
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass

from specla.errors import CapacityError, SpeclaError

SECONDS = 1.0
"""Processor time for an input of a few hundred kilobytes at most, with the fuzzer's counting."""
CONSTANT = 24 << 20
"""Bytes that a run may hold at a time beside twice its input, a budget of a template included."""
LONGEST = 1000
"""Characters of an error message."""


@dataclass(frozen=True)
class Broken:
    """A find. kind: "raised", "message", "slow" or "memory". place: tells finds from others."""

    kind: str
    place: str
    detail: str


def check(
    run: Callable[[bytes], object],
    data: bytes,
    *,
    memory: bool,
    constant: int = CONSTANT,
    limit: float = SECONDS,
) -> Broken | str:
    """Run, and say what came of it: "ok", the name of the error, or what was broken.

    memory: measure that as well, which is slower.  constant, limit: instead of CONSTANT
    and SECONDS.
    """
    if memory:
        tracemalloc.start()
        before = tracemalloc.get_traced_memory()[0]
    start = time.process_time()
    try:
        outcome = _outcome(run, data)
        seconds = time.process_time() - start
        peak = tracemalloc.get_traced_memory()[1] - before if memory else 0
    finally:
        if memory:
            tracemalloc.stop()
    if isinstance(outcome, Broken):
        return outcome
    if peak > 2 * len(data) + constant:
        return Broken("memory", outcome, f"{peak} bytes for an input of {len(data)}")
    if seconds > limit and not memory:
        # a machine has its hiccups: slow is what is slow three times
        again = min(_timed(run, data) for _ in range(2))
        if again > limit:
            return Broken("slow", outcome, f"{again:.2f} s for an input of {len(data)} bytes")
    return outcome


def _timed(run: Callable[[bytes], object], data: bytes) -> float:
    start = time.process_time()
    _outcome(run, data)
    return time.process_time() - start


def _outcome(run: Callable[[bytes], object], data: bytes) -> Broken | str:
    try:
        run(data)
    except SpeclaError as error:
        if isinstance(error.__context__, MemoryError) and not isinstance(error, CapacityError):
            return Broken("memory", type(error).__name__, "all that the limit leaves")
        message = str(error)
        if "\n" in message or not 0 < len(message) <= LONGEST:
            return Broken("message", type(error).__name__, f"{len(message)}: {message[:300]!r}")
        return type(error).__name__
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if "specla" in frame.filename] or list(frames)
        place = f"{type(error).__name__} at {ours[-1].filename.split('/')[-1]}:{ours[-1].lineno}"
        return Broken("raised", place, "".join(traceback.format_exception(error))[-1500:])
    return "ok"
