"""Threads: the same bytes with any number of them, failures reported, bad settings refused."""

from __future__ import annotations

import itertools
import platform
import threading
import time
from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.tiny import tiny_target

from specla.backends.numba import launcher as module
from specla.backends.numba import panels, products, quantise, walker
from specla.backends.numba.arguments import address_of
from specla.backends.numba.atomics import set_float_control
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.jit import Kernel
from specla.backends.numba.program import CallList
from specla.backends.numba.threads import Team
from specla.backends.numpy.backend import NumpyBackend
from specla.core.lifecycle import Progress
from specla.core.topology import Tree


@pytest.fixture
def everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SHARED_WORK", 0)
    monkeypatch.setattr(module, "SHARED_STATE", 0)
    monkeypatch.setattr(module, "SHARED_QUERIES", 0)
    monkeypatch.setattr(module, "SHARED_ENTRIES", 0)
    monkeypatch.setattr(quantise, "SHARED_VALUES", 0)
    monkeypatch.setattr(panels, "SHARED_BYTES", 0)


def _run(backend: Any) -> list[np.ndarray]:
    target = tiny_target(2, backend=backend, kind="Q8_0", config={"d_model": 64})
    sequences = [target.open() for _ in range(2)]
    arrays = []
    for i, sequence in enumerate(sequences):
        result = target.prefill([(sequence, range(3, 15 + i))], logits=True)
        arrays.append(backend.download(result.logits))
    tree = Tree.build(range(9), [-1, 0, 0, 1, 2, 2, 3, 0, 7])
    for path in ([0, 2, 5], [0, 1]):
        result = target.verify([(s, tree) for s in sequences])
        arrays.append(backend.download(result.logits))
        for sequence in sequences:
            target.commit(sequence, path)
    for sequence in sequences:
        arrays += target.state_arrays(sequence).values()
    return arrays


@pytest.mark.usefixtures("everything_is_shared")
@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_same_bytes(count: int) -> None:
    backend = NumbaBackend(threads=count)
    assert backend.threads == count
    for found, wanted in zip(_run(backend), _run(NumpyBackend()), strict=True):
        assert equal(found, wanted)


def _count(seen: Any, first_unit: int, last_unit: int) -> None:
    for i in range(first_unit, last_unit):
        seen[i] += 1


def _double(source: Any, out: Any, first_unit: int, last_unit: int) -> None:
    for i in range(first_unit, last_unit):
        out[i] = 2 * source[i]


count = Kernel(_count, "void(int64[::1], intp, intp)")
double = Kernel(_double, "void(int64[::1], int64[::1], intp, intp)")


def _calls(*items: tuple[Kernel, int, tuple[Any, ...]], share: bool = True) -> CallList:
    calls = CallList()
    for kernel, units, arguments in items:
        calls.add(kernel, units, arguments, share)
    calls.build()
    return calls


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_each_unit_is_done_once(threads: int) -> None:
    team = Team(threads)
    for units in (0, 1, 2, 3, 17, 1000):
        for share in (True, False):
            seen = np.zeros(units, np.int64)
            _calls((count, units, (seen,)), share=share).run(team, 7)
            assert seen.tolist() == [1] * units


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_a_call_sees_all_of_the_one_before(threads: int) -> None:
    """A chain of doublings, walked often and by more threads than there are processors."""
    arrays = [np.full(5000, i == 0, np.int64) for i in range(25)]
    links = [(double, 5000, (a, b)) for a, b in itertools.pairwise(arrays)]
    calls, team = _calls(*links), Team(threads)
    for turn in range(40):
        arrays[0][:] = turn
        calls.run(team, 7)
        assert (arrays[-1] == turn << 24).all()


def test_a_worker_that_comes_too_late_finds_the_gate_locked() -> None:
    seen = np.zeros(3, np.int64)
    calls = _calls((count, 3, (seen,)))
    calls.run(Team(1), 1)
    rows, counters = calls._rows, calls._counters
    gates = np.array([walker.LEFT, 0, 1], np.int64)
    counters.fill(0)
    words = [address_of(rows), address_of(counters), 1, address_of(gates), 2, 0]
    assert walker.help_out()(*words) == 0
    assert seen.tolist() == [1, 1, 1] and gates.tolist() == [walker.LEFT, 0, 1]
    gates[0] = walker.NOT_YET
    assert walker.help_out()(*words) == 0
    assert seen.tolist() == [2, 2, 2] and gates.tolist() == [walker.LEFT, 0, 1]


def test_workers_do_nothing_for_a_caller_that_never_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt may strike when the workers are called and the caller isn't there yet."""
    team, seen = Team(3), np.zeros(100, np.int64)
    calls = _calls((count, 100, (seen,)))

    def interrupted() -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(walker, "lead", interrupted)
        with pytest.raises(KeyboardInterrupt):
            calls.run(team, 7)
    assert calls.progress is Progress.UNTOUCHED
    time.sleep(0.05)
    assert not seen.any()
    calls.run(team, 7)
    assert seen.tolist() == [1] * 100


def test_a_forked_process_works_alone() -> None:
    team, seen = Team(2), np.zeros(9, np.int64)
    calls = _calls((count, 9, (seen,)))
    team._process += 1
    calls.run(team, 7)
    assert seen.tolist() == [1] * 9 and team._jobs[0].empty()


def _halve(x: Any, first_unit: int, last_unit: int) -> None:
    for i in range(first_unit, last_unit):
        x[i] = x[i] * np.float32(0.5)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets x86's control register")
@pytest.mark.parametrize("threads", [1, 3])
def test_subnormals_survive_a_thread_that_flushes_them(threads: int) -> None:
    """Some libraries switch subnormals off for the thread that loads or calls them."""

    def flush(before: Any) -> None:
        before[0] = set_float_control(0x1F80 | 0x8040)

    def restore(before: Any) -> None:
        before[0] = set_float_control(before[0])

    halve = Kernel(_halve, "void(float32[::1], intp, intp)", cached=False)
    switch = [Kernel(f, "void(int64[::1])", cached=False) for f in (flush, restore)]
    tiny, control = np.full(1000, 2.0**-126, np.float32), np.zeros(1, np.int64)
    calls, team = _calls((halve, 1000, (tiny,))), Team(threads)
    for kernel in switch:
        kernel.compile()
    switch[0](control)
    try:
        calls.run(team, 7)
    finally:
        switch[1](control)
    assert (tiny == np.float32(2.0**-127)).all()
    assert control[0] & 0x8040 == 0x8040, "the caller's own setting is back"


def test_two_callers_at_the_same_time() -> None:
    team, arrays = Team(2), [np.zeros(40, np.int64) for _ in range(4)]

    def work(seen: np.ndarray) -> None:
        for _ in range(200):
            _calls((count, 40, (seen,))).run(team, 7)

    callers = [threading.Thread(target=work, args=(seen,)) for seen in arrays]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    for seen in arrays:
        assert seen.tolist() == [200] * 40


def _too_much(first_unit: int, last_unit: int) -> None:
    for _ in range(first_unit, last_unit):
        np.empty(1 << 60, np.float32)[0] = 1


@pytest.mark.parametrize("threads", [1, 3])
def test_missing_memory_reaches_the_caller_and_the_team_goes_on(threads: int) -> None:
    team, seen = Team(threads), np.zeros(9, np.int64)
    kernel = Kernel(_too_much, "void(intp, intp)", cached=False)
    failing = _calls((kernel, 9, ()), (count, 9, (seen,)))
    with pytest.raises(MemoryError, match="scratch"):
        failing.run(team, 7)
    assert failing.progress is Progress.PARTIAL, "nobody may take the arrays for complete"
    with pytest.raises(MemoryError, match="_too_much"):
        kernel(0, 1)
    _calls((count, 9, (seen,))).run(team, 7)
    assert seen.tolist() == [2] * 9


@pytest.mark.parametrize(
    "arguments",
    [
        (np.zeros(3, np.int32), 0, 3),  # type
        (np.zeros((3, 1), np.int64), 0, 3),  # axes
        (np.zeros(6, np.int64)[::2], 0, 3),  # strides
        (0, 3),  # number
    ],
)
def test_wrong_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError, match="_count"):
        count(*arguments)


def test_workers_end_with_their_team() -> None:
    # by identity: workers of other tests' teams may still be ending
    earlier = set(threading.enumerate())
    team = Team(5)
    workers = [t for t in threading.enumerate() if t not in earlier]
    assert [t.name for t in workers] == ["specla kernels"] * 4
    assert all(t.is_alive() for t in workers)
    del team
    for worker in workers:
        worker.join(timeout=10)
    assert not any(t.is_alive() for t in workers)
