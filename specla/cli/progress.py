"""What goes to standard error while a command works: plain lines, or rich on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from time import monotonic
from typing import Protocol

from specla.cli.outcome import tell
from specla.cli.output import is_terminal

Row = tuple[str, str]
"""A label and what it says."""

Step = AbstractContextManager["Advance"]


class Advance(Protocol):
    """Told how far a step is, and what it works on next."""

    def __call__(self, done: int, total: int, item: str = "") -> None: ...


class Reporter(Protocol):
    """Where progress and results are shown."""

    def step(self, what: str, unit: str = "") -> Step:
        """Show that a step runs; with a unit ("tokens") from its first advance on, and how far."""

    def rows(self, rows: Sequence[Row]) -> None:
        """Show results."""

    def note(self, line: str) -> None:
        """Show one line."""


class Silent:
    """Shows nothing."""

    @contextmanager
    def step(self, what: str, unit: str = "") -> Iterator[Advance]:
        yield lambda done, total, item="": None

    def rows(self, rows: Sequence[Row]) -> None:
        pass

    def note(self, line: str) -> None:
        pass


class Plain:
    """Lines, for logs and pipes. interval: least seconds between two lines of one step."""

    def __init__(self, interval: float = 2.0) -> None:
        self._interval = interval

    @contextmanager
    def step(self, what: str, unit: str = "") -> Iterator[Advance]:
        start: float | None = None
        last = 0.0

        def advance(done: int, total: int, item: str = "") -> None:
            nonlocal start, last
            now = monotonic()
            if start is None:
                tell(what)
                start = last = now
            elif now - last >= self._interval:
                doing = f", {item}" if item else ""
                tell(f"{what}: {done}/{total} {unit}{doing}, {now - start:.0f} s")
                last = now

        if not unit:
            tell(what)
        yield advance

    def rows(self, rows: Sequence[Row]) -> None:
        for label, value in rows:
            tell(f"{label}: {value}")

    def note(self, line: str) -> None:
        tell(line)


def reporter(*, quiet: bool = False) -> Reporter:
    """The one that suits standard error."""
    if quiet:
        return Silent()
    if is_terminal(sys.stderr):
        from specla.cli.terminal import Terminal

        return Terminal()
    return Plain()
