"""Quoting of untrusted text, so that an error message stays one short line."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from specla.errors import FileFormatError

_LIMIT = 80


def quoted(value: object) -> str:
    """`repr` of a value from a file, cut to one readable line."""
    # cut before repr too: the repr of a 250,000-token list takes seconds
    if isinstance(value, (str, bytes)) and len(value) > _LIMIT:
        text = repr(value[: _LIMIT - 3])
        # a character may take ten when it is escaped
        return (text if len(text) <= _LIMIT else text[: _LIMIT - 3]) + "..."
    if isinstance(value, (list, tuple)) and len(value) > 8:
        return repr(list(value[:8]))[:-1][:_LIMIT] + f", ...] ({len(value)} values)"
    text = repr(value)
    return text if len(text) <= _LIMIT else text[: _LIMIT - 3] + "..."


def shown_path(path: Path) -> str:
    """The path as typed, or escaped when it holds control characters."""
    text = str(path)
    return text if text.isprintable() else repr(text)


def shown_key(key: str) -> str:
    """A metadata key as the file has it, or quoted when that is no short line."""
    return key if key.isprintable() and len(key) <= _LIMIT else quoted(key)


def fail(path: Path, what: str) -> NoReturn:
    """Raise FileFormatError with one line naming the file."""
    raise FileFormatError(f"{shown_path(path)}: {what}")
