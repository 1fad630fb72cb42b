"""How much a chat template may do: a budget of work, spent before the work is done.

A unit is about what handling one character costs (at most some tens of nanoseconds). Values are
weighed before anything walks through them, with whatever they hold counted as often as it is
reached: a list of a list of a list with a million references each is weighed as what it would
print, not as what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sized, ValuesView
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from jinja2.exceptions import SecurityError

BUDGET = 8_000_000
"""Units of work for a template, whatever it is given."""
PER_INPUT = 32
"""Units more for each unit of what it is given: long conversations may take long."""
ITEM, CALL, NODE = 16, 64, 4
"""Units for one item of a list, a call, and a node of the template that is evaluated."""
MAX_BITS = 10_000
"""Largest integer."""

_VIEWS = (AbstractSet, ValuesView)


class Meter:
    """What is left of a budget. Raises SecurityError when it is used up."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._left = budget

    def spend(self, units: int) -> None:
        self._left -= units
        if self._left < 0:
            raise SecurityError("it takes too many steps or builds too much")

    def weigh(self, *values: object) -> int:
        """Spend the weight of values and all that they hold, and return it."""
        before = self._left
        stack: list[Any] = list(values)
        while stack:
            value = stack.pop()
            self.spend(weight(value))
            if isinstance(value, Mapping):
                stack.extend(value)
                stack.extend(value.values())
            elif isinstance(value, (list, tuple, *_VIEWS)):
                stack.extend(value)
        return before - self._left


def weight(value: object) -> int:
    """Weight of a value without what its items hold. Raises SecurityError for a huge integer."""
    if isinstance(value, (str, bytes)):
        return ITEM + len(value)
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise SecurityError(f"an integer of more than {MAX_BITS} bits is not allowed")
        return ITEM
    if isinstance(value, (list, tuple, Mapping, range, *_VIEWS)) and isinstance(value, Sized):
        return ITEM * (1 + len(value))
    return ITEM


_meter: ContextVar[Meter | None] = ContextVar("meter", default=None)


@contextmanager
def metered(meter: Meter) -> Iterator[None]:
    """Whatever a template does in the block is on this meter."""
    token = _meter.set(meter)
    try:
        yield
    finally:
        _meter.reset(token)


def current() -> Meter:
    """The meter of the running template; a fresh one outside of any."""
    return _meter.get() or Meter()
