"""Progress and results for a person at a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from specla.cli.outcome import one_line
from specla.cli.progress import Advance, Row


class Terminal:
    """A spinner or a bar while a step runs, a table of results."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)

    @contextmanager
    def step(self, what: str, unit: str = "") -> Iterator[Advance]:
        title = escape(one_line(what))
        if not unit:
            with self._console.status(f"{title} ..."):
                yield lambda done, total, item="": None
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn(unit),
            TimeElapsedColumn(),
            TextColumn("{task.fields[item]}", style="dim"),
        )
        with Progress(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task(title, total=None, item="")
            yield lambda done, total, item="": bars.update(
                task, completed=done, total=total, item=escape(one_line(item))
            )

    def rows(self, rows: Sequence[Row]) -> None:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column(overflow="fold")
        for label, value in rows:
            table.add_row(label, escape(one_line(value)))
        self._console.print(table)

    def note(self, line: str) -> None:
        self._console.print(escape(one_line(line)), soft_wrap=True)
