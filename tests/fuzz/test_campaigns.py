"""Short runs of the fuzzer with a fixed seed, at each level and on each backend.

What a machine is good for is shown by tests/mutants, which switches planted bugs on.
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path

import pytest
from support.chosen import CPU_BACKENDS

from specla.backends.numpy import conv
from specla.errors import OptionError
from specla.fuzz.campaign import Campaign, Outcome, run
from specla.fuzz.demand import FoundError
from specla.fuzz.levels import LEVELS
from specla.fuzz.log import Log
from specla.fuzz.script import save

ROUNDS = {"kernels": 250, "engine": 80, "model": 30}


def played(campaign: Campaign) -> Outcome:
    outcome = run(campaign, lambda log, pairs, seconds: None)
    if outcome.error is not None:
        raise outcome.error
    return outcome


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize("level", LEVELS)
def test_no_difference(level: str, backend: str) -> None:
    outcome = played(Campaign(level, backend, seed=1, minutes=None, rounds=ROUNDS[level]))
    assert outcome.log.rounds >= ROUNDS[level]
    assert outcome.case is None


def test_all_kinds_of_operations_have_their_turn() -> None:
    outcome = played(Campaign("kernels", "numpy", seed=2, minutes=None, rounds=250))
    assert len(outcome.log.kinds) == outcome.kinds
    assert len(outcome.log.pairs) > outcome.pairs / 2


def test_a_seed_plays_the_same_twice() -> None:
    def counts(seed: int) -> tuple[int, int, set[tuple[type, type]]]:
        log = played(Campaign("kernels", "numpy", seed, minutes=None, rounds=40)).log
        return log.rounds, log.operations, log.pairs

    assert counts(3) == counts(3)
    assert counts(3) != counts(4)


def test_a_seed_does_not_depend_on_the_sources_around(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hypothesis would draw the constants of local modules, too."""

    def operations() -> list[str]:
        found: list[str] = []
        starts = Log.starts
        with monkeypatch.context() as patch:
            patch.setattr(Log, "starts", lambda log, op: found.append(repr(op)) or starts(log, op))
            played(Campaign("kernels", "numpy", seed=3, minutes=None, rounds=40))
        return found

    before = operations()
    name = "module_full_of_numbers"
    numbers = ", ".join(str(1000 + 7 * i) for i in range(300))
    (tmp_path / f"{name}.py").write_text(f"NUMBERS = [{numbers}]")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, name, import_module(name))
    assert operations() == before


def test_time_is_a_limit_too() -> None:
    told: list[int] = []

    def report(log: Log, pairs: int, seconds: float) -> None:
        told.append(log.rounds)

    outcome = run(Campaign("kernels", "numpy", minutes=1e-6, rounds=10**9), report)
    # one batch, and a report after each of its examples
    assert outcome.error is None and outcome.log.examples == len(told) - 1
    assert told == sorted(told)


def test_what_is_still_being_made_smaller_counts_when_the_run_is_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs: list[Log] = []
    monkeypatch.setattr(conv, "fold_window", lambda pool, layer, plan: None)

    def report(log: Log, pairs: int, seconds: float) -> None:
        logs.append(log)

    def stop() -> bool:
        # reports come after an example: the first one after the find is the first one of many
        return bool(logs) and logs[-1].failing is not None

    outcome = run(Campaign("kernels", "numpy", 7, minutes=None, rounds=500), report, stop)
    assert isinstance(outcome.error, FoundError)
    assert outcome.case is logs[-1].failing is not None


def test_two_runs_that_find_something_at_once_keep_both(tmp_path: Path) -> None:
    def keep(number: int) -> Path:
        return save(f"{number}\n", tmp_path, "found")

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(keep, range(200)))
    assert len(set(paths)) == 200
    assert [path.read_text() for path in paths] == [f"{number}\n" for number in range(200)]
    assert not list(tmp_path.glob("*.tmp"))


def test_an_unknown_level_lists_the_known_ones() -> None:
    with pytest.raises(OptionError, match="unknown level 'kernel'; known: kernels, engine, model"):
        run(Campaign("kernel", "numpy"), lambda log, pairs, seconds: None)
