"""A list of kernel calls, walked by several threads without Python and without its lock.

Threads take runs of a call's units from a shared counter, large ones first, and wait for each
other before the next call. Nobody owns a unit, so a thread that a busy machine holds up delays the
others by no more than the run it has taken. Waiting threads spin for some microseconds and then
give the processor away at each turn.

Memory, all int64:

* calls [n, 4]: entry, block, units, shared (whether more than one thread may work on it)
* counters [n, 16]: next unit in word 0, finished units in word 8 (apart: two cache lines)
* gates [threads + 1]: per worker, 0 = not yet here, 1 = at work, 2 = left or locked out; the number
  of the workers' runs that failed; 1 once the caller is here: before that nobody may begin
* busy: 1 while the workers help somebody; a second caller walks alone
* progress [2]: 1 once a walk has begun; calls walked to their end. No interrupt can hide these

Every thread computes with the default float control, whatever its library or creator has set.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from specla.backends.numba.atomics import (
    FLOAT_DEFAULT,
    add,
    enter,
    exchange,
    fetch,
    pause,
    put,
    set_float_control,
    yield_processor,
)
from specla.backends.numba.code_cache import CodeCache
from specla.backends.numba.jit import compile_entry, device, routine

CALL_WORDS, COUNTER_WORDS = 4, 16
SPINS = 2000
"""Turns of a waiting loop (about 15 us) before it lets other threads run."""
PATIENCE = 10 * SPINS
"""Turns that a worker waits for the caller."""
NOT_YET, AT_WORK, LEFT = 0, 1, 2


@device
def _wait(address: int, value: int) -> None:
    """Until the word at ``address`` is ``value``."""
    turns = 0
    while fetch(address) != value:
        turns += 1
        if turns < SPINS:
            pause()
        else:
            yield_processor()


@device
def _take(counter: int, units: int, shared: int, threads: int) -> tuple[int, int]:
    """A run of units for the calling thread, empty when all are taken."""
    while True:
        first = fetch(counter)
        left = units - first
        if left <= 0:
            return units, units
        size = left
        if shared:
            size = max(1, left // (2 * threads))
        if exchange(counter, first, first + size):
            return first, first + size


@routine
def _walk(calls: int, counters: int, count: int, threads: int) -> int:
    """All calls in order, as one of ``threads``. Returns how many of the own runs failed."""
    failures = 0
    for i in range(count):
        at, counter = calls + 8 * CALL_WORDS * i, counters + 8 * COUNTER_WORDS * i
        units = fetch(at + 16)
        while True:
            first, last = _take(counter, units, fetch(at + 24), threads)
            if first == last:
                break
            failures += enter(fetch(at), fetch(at + 8), first, last)
            add(counter + 64, last - first)
        _wait(counter + 64, units)
    return failures


@device
def _walk_alone(calls: int, count: int) -> int:
    failures = 0
    for i in range(count):
        at = calls + 8 * CALL_WORDS * i
        failures += enter(fetch(at), fetch(at + 8), 0, fetch(at + 16))
    return failures


@device
def _walk_together(calls: int, counters: int, count: int, gates: int, threads: int) -> int:
    put(gates + 8 * threads, 1)
    failures = _walk(calls, counters, count, threads)
    for i in range(threads - 1):
        gate = gates + 8 * i
        # who isn't here yet needn't come
        if not exchange(gate, NOT_YET, LEFT):
            _wait(gate, LEFT)
    late: int = fetch(gates + 8 * (threads - 1))
    return failures + late


def _lead(
    calls: int, counters: int, count: int, gates: int, threads: int, busy: int, progress: int
) -> int:
    """The caller's part. Returns the number of failures once nobody else is at work."""
    before = set_float_control(FLOAT_DEFAULT)
    put(progress, 1)
    if threads > 1 and exchange(busy, 0, 1):
        failures = _walk_together(calls, counters, count, gates, threads)
        put(busy, 0)
    else:
        failures = _walk_alone(calls, count)
    if not failures:  # else nobody may take the arrays for complete
        add(progress + 8, count)
    set_float_control(before)
    return failures


@device
def _opened(gates: int, threads: int) -> bool:
    """Whether the caller is here; given up soon, for an interrupt may have kept it away."""
    for turn in range(PATIENCE):
        if fetch(gates + 8 * threads):
            return True
        if turn < SPINS:
            pause()
        else:
            yield_processor()
    return False


def _help(calls: int, counters: int, count: int, gates: int, threads: int, me: int) -> int:
    """A worker's part; nothing if the others are done."""
    gate = gates + 8 * me
    if not _opened(gates, threads) or not exchange(gate, NOT_YET, AT_WORK):
        return 0
    before = set_float_control(FLOAT_DEFAULT)
    failures = _walk(calls, counters, count, threads)
    set_float_control(before)
    add(gates + 8 * (threads - 1), failures)
    put(gate, LEFT)
    return failures


_SIX = "int64(intp, intp, intp, intp, intp, intp)"
_SEVEN = "int64(intp, intp, intp, intp, intp, intp, intp)"


@cache
def lead() -> Callable[..., int]:
    """Compiled: lead(calls, counters, count, gates, threads, busy, progress)."""
    made = compile_entry(_lead, _SEVEN, CodeCache(_lead))
    function: Callable[..., int] = made.ctypes
    return function


@cache
def help_out() -> Callable[..., int]:
    """Compiled: help_out(calls, counters, count, gates, threads, me)."""
    made = compile_entry(_help, _SIX, CodeCache(_help))
    function: Callable[..., int] = made.ctypes
    return function
