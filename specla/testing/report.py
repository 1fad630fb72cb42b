"""What the kit found out, for a person to read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specla.stats import GenerationStats
from specla.testing.table import Result
from specla.testing.watch import SlowCall


@dataclass(frozen=True)
class Figures:
    """One run in the engine. accept_length: tokens per round, root included (plain decoding: 1).
    rows: nodes verified per round, root included. refused: share of rounds."""

    prompt: int
    sampling: str
    tokens: int
    rounds: int
    accept_length: float
    rows: float
    refused: float

    @staticmethod
    def of(prompt: int, sampling: str, stats: GenerationStats) -> Figures:
        """From a session's counters."""
        rounds = max(stats.rounds, 1)
        return Figures(
            prompt,
            sampling,
            stats.emitted,
            stats.rounds,
            stats.mean_accept_length,
            stats.rows / rounds,
            stats.refused / rounds,
        )


@dataclass(frozen=True)
class AdapterReport:
    """name: of the adapter.  results: checks made and skipped.  figures: per prompt and sampling.
    slow: calls that took longer than seconds_per_call."""

    name: str
    backend: str
    results: tuple[Result, ...]
    figures: tuple[Figures, ...]
    calls: int
    slow: tuple[SlowCall, ...]

    def text(self) -> str:
        """Several lines."""
        lines = [f"adapter {self.name} on backend {self.backend}", *_checks(self.results)]
        if self.figures:
            head = ("prompt", "sampling", "tokens", "rounds", "accept length", "rows", "refused")
            rows = [
                (
                    str(f.prompt + 1),
                    f.sampling,
                    str(f.tokens),
                    str(f.rounds),
                    f"{f.accept_length:.2f}",
                    f"{f.rows:.1f}",
                    f"{f.refused:.0%}",
                )
                for f in self.figures
            ]
            lines += ["", *_table([head, *rows])]
        lines += ["", f"{self.calls} calls, {len(self.slow)} slow"]
        if self.slow:
            worst = max(self.slow, key=lambda call: call.seconds)
            lines[-1] += f", the slowest {worst.hook}: {worst.seconds:.2f} s"
        return "\n".join(lines)


@dataclass(frozen=True)
class BackendReport:
    """name: of the backend.  results: checks made and skipped."""

    name: str
    results: tuple[Result, ...]

    def text(self) -> str:
        """Several lines."""
        return "\n".join([f"backend {self.name}", *_checks(self.results)])


def _checks(results: Iterable[Result]) -> list[str]:
    rows = [(r.name, "skipped" if r.skipped else "passed", r.skipped or r.note) for r in results]
    return _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
