"""What a fuzzed world says when it meets a difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


class FoundError(AssertionError):
    """A difference from plain decoding, or a claim that does not hold: a defect of specla."""


def demand(condition: bool, otherwise: str) -> None:
    """Raise FoundError unless ``condition``."""
    if not condition:
        raise FoundError(otherwise)


def demand_refusal(error: type[Exception], call: Callable[[], Any]) -> None:
    """Raise FoundError unless ``call()`` raises ``error``."""
    try:
        call()
    except error:
        return
    raise FoundError(f"{error.__name__} expected; the call was not refused")
