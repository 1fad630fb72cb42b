"""Range checks shared by the option tables of the adapters."""

from __future__ import annotations

from typing import Any

from specla.errors import OptionError


def check_integers(adapter: str, options: Any, **ranges: tuple[int, int]) -> None:
    """Each named field of ``options`` is an int in its range, both ends included.

    Raises OptionError naming the adapter, the option, its value and the range.
    """
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise OptionError(
                f"adapter {adapter!r}: option {name} is {value!r}; "
                f"it must be an integer from {low} to {high}"
            )


def check_numbers(adapter: str, options: Any, **ranges: tuple[float, float]) -> None:
    """Each named field of ``options`` is a number in its range, both ends included; NaN is none.

    Raises OptionError naming the adapter, the option, its value and the range.
    """
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if (
            isinstance(value, bool)
            or not isinstance(value, (int, float))
            or not low <= value <= high
        ):
            raise OptionError(
                f"adapter {adapter!r}: option {name} is {value!r}; "
                f"it must be a number from {low:g} to {high:g}"
            )


def check_choice(adapter: str, options: Any, name: str, *choices: str) -> None:
    """The named field of ``options`` is one of ``choices``. Raises OptionError listing them."""
    value = getattr(options, name)
    if value not in choices:
        raise OptionError(
            f"adapter {adapter!r}: option {name} is {value!r}; it must be {' or '.join(choices)}"
        )


def check_number(adapter: str, options: Any, name: str, low: float, high: float) -> None:
    """As :func:`check_numbers`, for one field."""
    check_numbers(adapter, options, **{name: (low, high)})


def check_probability(adapter: str, options: Any, name: str) -> None:
    """The named field of ``options`` is a number from 0 to 1. Raises OptionError; NaN is none."""
    check_numbers(adapter, options, **{name: (0.0, 1.0)})
