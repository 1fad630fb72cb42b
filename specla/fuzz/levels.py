"""What can be fuzzed: one place to add a level."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specla.errors import OptionError

if TYPE_CHECKING:
    from specla.fuzz.machine import FuzzMachine


@dataclass(frozen=True)
class Level:
    """machines: imports them; they take turns.  short: rounds of a short run, about 20 seconds on a
    backend that isn't interpreted."""

    machines: Callable[[], tuple[type[FuzzMachine], ...]]
    short: int


def _kernels() -> tuple[type[FuzzMachine], ...]:
    from specla.fuzz.lifecycle.machine import KernelLifecycle

    return (KernelLifecycle,)


def _engine() -> tuple[type[FuzzMachine], ...]:
    from specla.fuzz.lifecycle.machine import TinyLifecycle
    from specla.fuzz.sessions.machine import TinySessions

    return TinyLifecycle, TinySessions


def _model() -> tuple[type[FuzzMachine], ...]:
    from specla.fuzz.lifecycle.machine import BundledLifecycle
    from specla.fuzz.sessions.machine import BundledSessions

    return BundledLifecycle, BundledSessions


LEVELS = {
    "kernels": Level(_kernels, 1500),
    "engine": Level(_engine, 600),
    "model": Level(_model, 200),
}


def level_of(name: str) -> Level:
    """Raises OptionError for an unknown name."""
    if name not in LEVELS:
        raise OptionError(f"unknown level {name!r}; known: {', '.join(LEVELS)}")
    return LEVELS[name]
