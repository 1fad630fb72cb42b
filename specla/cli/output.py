"""Standard output: text as it comes, in UTF-8, whatever the locale."""

from __future__ import annotations

import io
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

from specla.errors import OptionError


def utf8_stdout() -> None:
    """Make standard output write UTF-8, line ends untouched.

    What UTF-8 can't hold (a lone surrogate of a damaged file name) is written as an escape, which
    JSON reads back.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")


def write_text(text: str) -> None:
    """Show text now.

    Raises BrokenPipeError when the reader went away, OptionError when there is nowhere to write.
    """
    if text:
        if sys.stdout is None:
            raise OptionError("standard output is closed; give it somewhere to write the result")
        sys.stdout.write(text)
        sys.stdout.flush()


def write_json(value: Any) -> None:
    """One JSON object and a newline."""
    write_text(json.dumps(as_json(value), ensure_ascii=False, allow_nan=False) + "\n")


def as_json(value: Any) -> Any:
    """A value as JSON can hold it: numbers that are none, and what it doesn't know, become text."""
    if isinstance(value, Mapping):
        return {str(key): as_json(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [as_json(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, (str, int, float, bool, type(None))) else str(value)


def is_terminal(stream: Any) -> bool:
    """Whether a person looks at the stream."""
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:
        return False
