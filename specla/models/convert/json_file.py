"""JSON files of a checkpoint, with typed access whose errors name file and key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NoReturn

from specla.errors import FileFormatError
from specla.models.gguf.text import fail, quoted, shown_path
from specla.regular_file import open_regular


def load_json(path: Path) -> dict[str, Any]:
    """The JSON object in a file. Raises FileFormatError, one line, for anything else."""
    try:
        with open_regular(path) as file:
            text = file.read().decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise FileFormatError(f"{shown_path(path)}: can't read it: {reason}") from None
    return parse_json(text, path)


def parse_json(text: str, path: Path) -> dict[str, Any]:
    """The JSON object in a text; `path` is for messages. Keys that occur twice are an error."""
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        fail(path, f"is not valid JSON: {str(error).splitlines()[0][:200]}")
    if not isinstance(found, dict):
        fail(path, f"holds {quoted(found)}, not a JSON object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise ValueError(f"the key {quoted(twice)} occurs twice")
    return result


_MISSING: Any = object()
_TINY, _HUGE = 2.0**-126, 3.4e38


class Keys:
    """Typed access to a JSON object. A key holding null counts as absent."""

    def __init__(self, path: Path, values: dict[str, Any]) -> None:
        self.path, self.values = path, values

    def get(self, key: str) -> Any:
        return self.values.get(key)

    def integer(self, key: str, default: int = _MISSING, *, low: int = 0) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value < 2**31:
            self.reject(key, value, f"an integer from {low}")
        return value

    def number(self, key: str, default: float = _MISSING) -> float:
        """A positive number in float32's range."""
        value = self._value(key, default)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # what a float32 holds, as GGUF files do
        if not is_number or not _TINY <= value <= _HUGE:
            self.reject(key, value, "a positive number")
        return float(value)

    def boolean(self, key: str, default: bool = _MISSING) -> bool:
        value = self._value(key, default)
        if not isinstance(value, bool):
            self.reject(key, value, "true or false")
        return value

    def string(self, key: str, default: str = _MISSING) -> str:
        value = self._value(key, default)
        if not isinstance(value, str):
            self.reject(key, value, "a string")
        return value

    def part(self, key: str) -> Keys:
        """A nested object, empty when absent."""
        value = self._value(key, {})
        if not isinstance(value, dict):
            self.reject(key, value, "an object")
        return Keys(self.path, value)

    def reject(self, key: str, value: object, wanted: str) -> NoReturn:
        """Raise FileFormatError: the key's value isn't what is wanted."""
        fail(self.path, f"{key} is {quoted(value)}; {wanted} is needed")

    def _value(self, key: str, default: Any) -> Any:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is _MISSING:
            fail(self.path, f"{key} is missing; a complete configuration is needed")
        return default
