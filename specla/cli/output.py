"""Standard output: text as it comes, in UTF-8, whatever the locale."""

from __future__ import annotations

import io
import json
import sys
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
    write_text(json.dumps(value, ensure_ascii=False) + "\n")


def is_terminal(stream: Any) -> bool:
    """Whether a person looks at the stream."""
    try:
        return stream is not None and bool(stream.isatty())
    except ValueError:
        return False
