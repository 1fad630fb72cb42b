"""What the methods, operators and filters that can make much of little will cost, beforehand.

Everything else that a template can call is bounded by what it is given, which the sandbox weighs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from string import Formatter
from typing import Any

from jinja2.exceptions import SecurityError
from jinja2.sandbox import safe_range

from specla.models.tokenizer.meter import ITEM, current

MAX_PRODUCT = 1_000_000
"""Longest text or list that `*` may make."""
MAX_EXPONENT_BITS = 10_000
"""Most bits that `**` may make of integers."""
_WIDEST = 1000
_LARGEST_OF_RANGE = 1 << 53
_MAX_PRECISION = 64
_WIDE = re.compile(r"\d{4,}")

REMOVED_METHODS = frozenset(
    ("encode", "maketrans", "translate", "to_bytes", "from_bytes", "fromkeys", "striptags")
)
"""Methods that no template has a use for, and whose cost would have to be worked out."""
REMOVED_FILTERS = frozenset(("pprint", "striptags", "urlize", "wordwrap", "xmlattr"))
"""Filters that make HTML or look at objects: likewise."""


def product(left: Any, right: Any) -> None:
    """Before `left * right`."""
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, bytes, list, tuple)) and isinstance(count, int):
            items = len(sequence) * max(count, 0)
            if items > MAX_PRODUCT:
                raise SecurityError(f"a product of more than {MAX_PRODUCT} items is not allowed")
            current().spend(items * (1 if isinstance(sequence, (str, bytes)) else ITEM))


def power(base: Any, exponent: Any) -> None:
    """Before `base ** exponent`."""
    integers = isinstance(base, int) and isinstance(exponent, int)
    if integers and base.bit_length() * abs(exponent) > MAX_EXPONENT_BITS:
        raise SecurityError(f"a power of more than {MAX_EXPONENT_BITS} bits is not allowed")


def percent(text: str, values: object) -> None:
    """Before `text % values`."""
    if _WIDE.search(text) or "*" in text:
        raise SecurityError(f"a format of {_WIDEST} characters and more is not allowed")
    meter = current()
    meter.spend(text.count("%") * (_WIDEST + meter.weigh(values)))


def braces(text: str, values: object) -> None:
    """Before `text.format(values)`."""
    # what Python itself takes for formats; patterns may look at each place again and again
    specs = [spec for _, _, spec, _ in Formatter().parse(text) if spec]
    if any("{" in spec or _WIDE.search(spec) for spec in specs):
        raise SecurityError(f"a format of {_WIDEST} characters and more is not allowed")
    meter = current()
    meter.spend(text.count("{") * (_WIDEST + meter.weigh(values)))


def _replace(text: Any, old: Any = "", new: Any = "", *_: Any, **__: Any) -> None:
    text, old, new = str(text), str(old), str(new)
    current().spend(len(text) + text.count(old) * len(new))


def _join(separator: Any, values: Any = (), *_: Any) -> None:
    current().spend(len(str(separator)) * (len(values) if hasattr(values, "__len__") else 1))


def _widen(text: str, *given: Any) -> None:
    width = max([8, *(value for value in given if isinstance(value, int))])
    current().spend(width * (1 + text.count("\t")))


def _strip(text: str, letters: Any = "", *_: Any) -> None:
    current().spend(len(text) * (len(letters) // ITEM if isinstance(letters, str) else 0))


def _search_backwards(text: str, *given: Any) -> None:
    # Python searches cleverly from the front only
    longest = max([0, *(len(value) for value in given if isinstance(value, str))])
    current().spend(len(text) * (longest // ITEM))


METHODS: dict[str, Callable[..., None]] = {
    "replace": _replace,
    "join": _join,
    "center": _widen,
    "ljust": _widen,
    "rjust": _widen,
    "zfill": _widen,
    "expandtabs": _widen,
    "strip": _strip,
    "lstrip": _strip,
    "rstrip": _strip,
    **dict.fromkeys(("rfind", "rindex", "rsplit", "rpartition"), _search_backwards),
}
"""Checks of the methods of a text: called with the text and the arguments, named ones last."""


def numbers(*bounds: int) -> range:
    """`range(...)`, not of huge numbers: multiples of 2**61 - 1 have all the same hash."""
    made: range = safe_range(*bounds)
    if made and max(abs(made[0]), abs(made[-1])) > _LARGEST_OF_RANGE:
        raise SecurityError(f"a range beyond {_LARGEST_OF_RANGE} is not allowed")
    return made


def _indent(text: Any, width: Any = 4, *_: Any, **__: Any) -> None:
    size = len(width) if isinstance(width, str) else width
    current().spend((str(text).count("\n") + 1) * max(int(size), 0))


def _count(_: Any, *counts: Any, **named: Any) -> None:
    for count in (*counts, *named.values()):
        if isinstance(count, int):
            current().spend(max(count, 0) * ITEM)


def _round(_: Any, precision: Any = 0, *__: Any, **___: Any) -> None:
    if not isinstance(precision, int) or abs(precision) > _MAX_PRECISION:
        raise SecurityError(f"rounding to more than {_MAX_PRECISION} digits is not allowed")


def _sum(_: Any, attribute: Any = None, start: Any = 0, *__: Any) -> None:
    if not isinstance(start, (int, float)):
        raise SecurityError("only numbers can be summed up")


def _trim(value: Any, chars: Any = None, *_: Any) -> None:
    _strip(str(value), chars)


def _join_filter(values: Any, d: Any = "", attribute: Any = None, *_: Any) -> None:
    _join(d, values)


def _format(text: Any, *values: Any, **named: Any) -> None:
    percent(str(text), [values, named])


def _center(text: Any, width: Any = 80, *_: Any) -> None:
    _widen(str(text), width)


def _words(text: Any, *_: Any) -> None:
    # a list of words in between
    current().spend(ITEM * len(str(text)))


def _sort(value: Any, *_: Any, **__: Any) -> None:
    # comparing and copying again and again: what the caller has weighed once, three times more
    for _time in range(3):
        current().weigh(value)


FILTERS: dict[str, Callable[..., None]] = {
    "replace": _replace,
    "join": _join_filter,
    "center": _center,
    "indent": _indent,
    "batch": _count,
    "slice": _count,
    "round": _round,
    "sum": _sum,
    "trim": _trim,
    "title": _words,
    "wordcount": _words,
    "format": _format,
    **dict.fromkeys(("sort", "unique", "groupby", "dictsort", "min", "max"), _sort),
}
"""Checks of filters: called with the value and the arguments."""
CONSTANT_FILTERS = frozenset(("attr", "count", "d", "default", "first", "items", "last", "length"))
"""Filters that take the same time whatever the value is."""
LAZY_FILTERS = frozenset(("map", "select", "selectattr", "reject", "rejectattr"))
"""Filters whose work is done item by item, when the items are asked for."""
CONSTANT_TESTS = frozenset((
    "boolean", "callable", "defined", "even", "false", "filter", "float", "integer", "iterable",
    "mapping", "none", "number", "odd", "sameas", "sequence", "string", "test", "true", "undefined",
))  # fmt: skip
"""Tests that take the same time whatever the value is."""


def each(values: Iterable[Any]) -> Iterable[Any]:
    """The values, a step each."""
    for value in values:
        current().spend(2 * ITEM)
        yield value
