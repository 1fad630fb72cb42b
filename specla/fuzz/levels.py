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
    """machines: imports them; they take turns."""

    about: str
    machines: Callable[[], tuple[type[FuzzMachine], ...]]


def _kernels() -> tuple[type[FuzzMachine], ...]:
    from specla.fuzz.lifecycle.machine import KernelLifecycle

    return (KernelLifecycle,)


def _engine() -> tuple[type[FuzzMachine], ...]:
    from specla.fuzz.lifecycle.machine import TinyLifecycle

    return (TinyLifecycle,)


def _model() -> tuple[type[FuzzMachine], ...]:
    from specla.fuzz.lifecycle.machine import BundledLifecycle

    return (BundledLifecycle,)


LEVELS = {
    "kernels": Level("recurrent layers, attention and their state, without a model", _kernels),
    "engine": Level("a tiny random model, and sessions with hostile adapters", _engine),
    "model": Level("the bundled model", _model),
}


def level_of(name: str) -> Level:
    """Raises OptionError for an unknown name."""
    if name not in LEVELS:
        raise OptionError(f"unknown level {name!r}; known: {', '.join(LEVELS)}")
    return LEVELS[name]
