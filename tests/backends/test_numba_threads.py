"""Threads: the same bytes with any number of them, failures reported, bad settings refused."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.tiny import tiny_target

from specla.backends.numba import backend as module
from specla.backends.numba import products, threads
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.threads import Team, choose_threads
from specla.backends.numpy.backend import NumpyBackend
from specla.core.topology import Tree
from specla.errors import OptionError


@pytest.fixture
def everything_is_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "SHARED_WORK", 0)
    monkeypatch.setattr(module, "SHARED_STATE", 0)
    monkeypatch.setattr(module, "SHARED_QUERIES", 0)


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


def test_units_are_cut_without_gap_or_overlap() -> None:
    team = Team(4)
    for units in (1, 2, 3, 4, 5, 17):
        seen: list[tuple[int, int]] = []
        team.run(lambda first, last, seen=seen: seen.append((first, last)), units, share=True)
        assert sorted(i for first, last in seen for i in range(first, last)) == list(range(units))
        assert len(seen) == min(4, units)


def test_not_worth_sharing_stays_on_the_caller() -> None:
    callers = []
    Team(4).run(lambda first, last: callers.append(threading.current_thread()), 9, share=False)
    assert callers == [threading.current_thread()]


@pytest.mark.parametrize("bad_unit", [0, 2])
def test_failure_of_any_thread_reaches_the_caller_and_the_team_goes_on(bad_unit: int) -> None:
    team, done = Team(3), []

    def work(first: int, last: int) -> None:
        if first == bad_unit:
            raise OSError("broken")
        done.append(first)

    with pytest.raises(OSError, match="broken"):
        team.run(work, 3, share=True)
    assert len(done) == 2, "the others were waited for"
    team.run(lambda first, last: done.append(first), 3, share=True)
    assert len(done) == 5


def test_a_second_caller_works_alone() -> None:
    team, inner = Team(2), []

    def work(first: int, last: int) -> None:
        if first == 0:
            team.run(lambda a, b: inner.append((a, b)), 8, share=True)

    team.run(work, 2, share=True)
    assert inner == [(0, 8)]


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


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    assert choose_threads() == 1 and choose_threads(5) == 5
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert choose_threads() == 3 and choose_threads(2) == 2
    for bad in ("0", "-1", "many", "257", "1.5"):
        monkeypatch.setenv(threads.VARIABLE, bad)
        with pytest.raises(OptionError, match="must be a whole number 1"):
            choose_threads()
