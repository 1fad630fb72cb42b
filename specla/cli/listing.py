"""Tables of names and what belongs to them, for people or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from specla.cli.outcome import one_line
from specla.cli.output import is_terminal, write_text


def write_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Aligned columns on standard output; a rich table on a terminal. No header: ``()``."""
    cells = [[one_line(cell) for cell in row] for row in rows]
    if is_terminal(sys.stdout):
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table

        table = Table(box=None, header_style="bold", pad_edge=False, show_header=bool(header))
        for name in header or [""] * len(cells[0]):
            table.add_column(name, overflow="fold")
        for row in cells:
            table.add_row(*map(escape, row))
        Console(highlight=False).print(table)
        return
    lines = [list(header), *cells] if header else cells
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for row in lines:
        line = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        write_text(line.rstrip() + "\n")
