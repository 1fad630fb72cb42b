"""A run of the fuzzer: examples of a level's machines in turns, until time or rounds are over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from time import monotonic
from typing import Any

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.reporting import with_reporter
from hypothesis.stateful import run_state_machine_as_test

from specla.fuzz.computing import Pace, pace
from specla.fuzz.levels import level_of
from specla.fuzz.log import Case, Log
from specla.fuzz.machine import FuzzMachine
from specla.fuzz.world import Operation

STEPS = 30
"""Operations of one example."""


@dataclass(frozen=True)
class Campaign:
    """What to fuzz and for how long; it ends with the first of both limits, between two batches.

    minutes, rounds: None for no limit.  shrink: look for the smallest case when one is found.
    """

    level: str
    backend: str
    seed: int = 0
    minutes: float | None = 1.0
    rounds: int | None = None
    shrink: bool = True


@dataclass(frozen=True)
class Outcome:
    """kinds, pairs: of operations that the level can play.  case, error: what was found, if any."""

    log: Log
    kinds: int
    pairs: int
    seconds: float
    case: Case | None = None
    error: BaseException | None = None


class _StoppedError(BaseException):
    """Ends an example between two operations; Hypothesis lets it through."""


def run(
    campaign: Campaign,
    report: Callable[[Log, int, float], None],
    stop: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Fuzz. report: told (log, pairs of operations in all, seconds) from time to time.

    stop: asked before every operation whether to end now; what was found and is still being made
    smaller then counts as it is. Raises OptionError for an unknown level.
    """
    level = level_of(campaign.level)
    machines, examples = level.machines(), pace(campaign.backend).examples
    log, start, stopped = Log(), monotonic(), False
    # machines have operations of one name, and none in common
    each = [len(machine.operations) for machine in machines]
    kinds, pairs = sum(each), sum(n * n for n in each)

    def outcome(error: BaseException | None = None) -> Outcome:
        seconds = monotonic() - start
        return Outcome(log, kinds, pairs, seconds, log.failing if error else None, error)

    def tell() -> None:
        report(log, pairs, monotonic() - start)

    def stops() -> bool:
        nonlocal stopped
        stopped = stopped or stop()
        return stopped

    for batch in itertools.count():
        machine = machines[batch % len(machines)]
        try:
            play_examples(
                machine,
                campaign.backend,
                campaign.seed * 1_000_003 + batch,
                log=log,
                count=examples,
                shrink=campaign.shrink,
                told=tell,
                stop=stops,
            )
        except (Exception, SystemExit, _StoppedError) as error:
            # Hypothesis takes an example that was stopped for a flaky one, now and then
            return outcome(log.error if stopped else error)
        tell()
        over = campaign.minutes is not None and monotonic() - start >= 60 * campaign.minutes
        if over or (campaign.rounds is not None and log.rounds >= campaign.rounds):
            break
    return outcome()


def play_examples(
    machine: type[FuzzMachine],
    backend: str,
    start: int,
    *,
    log: Log,
    count: int = Pace.examples,
    shrink: bool = False,
    told: Callable[[], None] = lambda: None,
    stop: Callable[[], bool] = lambda: False,
) -> None:
    """``count`` examples of a machine, always the same for a ``start``. Raises what one raised.

    log: of what is played.  told: called after each.  stop: asked before every operation.
    """

    class Bound(machine):  # type: ignore[misc, valid-type]
        def play(self, operation: Operation) -> None:
            if stop():
                raise _StoppedError
            super().play(operation)

        def teardown(self) -> None:
            super().teardown()
            told()

    Bound.__name__ = Bound.__qualname__ = machine.__name__
    Bound.backend, Bound.log = backend, log
    phases = (Phase.generate, Phase.shrink) if shrink else (Phase.generate,)
    with with_reporter(lambda _: None), _the_same_everywhere():
        run_state_machine_as_test(
            seed(start)(Bound),
            settings=settings(
                max_examples=count,
                stateful_step_count=STEPS,
                phases=phases,
                database=None,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )


@contextmanager
def _the_same_everywhere() -> Iterator[None]:
    """Hypothesis also draws constants that it finds in the sources of a checkout: a seed would play
    something else in every place and after every edit. Versions without that have no such hook."""
    module: Any = None
    with suppress(ImportError):
        module = import_module("hypothesis.internal.conjecture.providers")
    found = getattr(module, "_get_local_constants", None)
    if found is None:
        yield
        return
    nothing = type(found())()
    module._get_local_constants = lambda: nothing
    module.CONSTANTS_CACHE.cache.clear()
    try:
        yield
    finally:
        module._get_local_constants = found
        module.CONSTANTS_CACHE.cache.clear()
