"""What a soak found: its figures, and the judgement on them."""

from __future__ import annotations

import ctypes
import gc
import os
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from harness import Table

from specla.testing.alarm import DriftAlarm

FLAT = 0.01
"""Most growth of the memory after the warm-up, as a share."""

JUDGED_FROM = 2000
"""Rounds; a shorter soak is hardly warm, so its growth is shown and not judged."""


@dataclass
class Result:
    """What a soak did and found. memory: (round, resident bytes), from the end of the warm-up on.

    digest: of all states and logits of plain decoding, so the same on all backends.
    """

    backend: str
    regime: str
    alarm: DriftAlarm
    rounds: int = 0
    sequences: int = 0
    tokens: int = 0
    nodes: int = 0
    chains: int = 0
    gathers: int = 0
    states: int = 0
    logits: int = 0
    accept_lengths: Counter[int] = field(default_factory=Counter)
    memory: list[tuple[int, int]] = field(default_factory=list)
    reference_differs: list[str] = field(default_factory=list)
    seconds: float = 0.0
    digest: Any = field(default_factory=sha256)

    @property
    def growth(self) -> float | None:
        """Growth of the resident memory after the warm-up, as a share of it; None if unknown."""
        sizes = [size for _, size in self.memory]
        return max(sizes) / sizes[0] - 1 if len(sizes) > 1 else None

    @property
    def mean_accept_length(self) -> float:
        """Tokens committed per round, root included."""
        return self.tokens / self.rounds if self.rounds else 0.0

    def report(self) -> dict[str, Any]:
        """Everything as JSON-able values."""
        first = self.alarm.first
        return {
            "backend": self.backend,
            "regime": self.regime,
            "rounds": self.rounds,
            "sequences": self.sequences,
            "tokens": self.tokens,
            "mean_accept_length": round(self.mean_accept_length, 4),
            "accept_lengths": dict(sorted(self.accept_lengths.items())),
            "mean_nodes": round(self.nodes / max(self.rounds, 1), 2),
            "chains": self.chains,
            "gathers": self.gathers,
            "states_compared": self.states,
            "logits_compared": self.logits,
            "differing_rounds": self.alarm.differing,
            "first_difference": first and [first.round, first.where, *first.names],
            "accept_length_before": self.alarm.before,
            "accept_length_after": self.alarm.after,
            "reference_differs": self.reference_differs,
            "resident_bytes": self.memory,
            "growth": self.growth,
            "seconds": round(self.seconds, 1),
            "digest": self.digest.hexdigest(),
        }


def resident_bytes() -> int | None:
    """Physical memory of this process; None where it can't be told.

    Garbage is collected first, and the C library's free memory given back, where it can be told to:
    how much of that it keeps changes by more than a leak would.
    """
    gc.collect()
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return None


def failures_of(result: Result) -> list[str]:
    """Why a soak failed, in lines; none if it didn't."""
    subject, lines = result.alarm.subject, []
    if result.alarm.first is not None:
        lines.append(result.alarm.report().splitlines()[-1])
    if result.reference_differs:
        names = ", ".join(result.reference_differs)
        lines.append(f"{subject}: plain decoding differs from the reference backend: {names}")
    growth = result.growth
    if growth is not None and growth > FLAT and result.rounds >= JUDGED_FROM:
        sizes = ", ".join(f"{size / 2**20:.1f}" for _, size in result.memory)
        lines.append(f"{subject}: memory grew by {100 * growth:.2f} %: MiB {sizes}")
    return lines


def print_table(results: list[Result]) -> None:
    """A line for each soak."""
    table = Table(
        "backend",
        "regime",
        "rounds",
        "sequences",
        "tokens",
        "accept length",
        "nodes",
        "chains",
        "gathers",
        "differ",
        "memory, MiB",
        "growth",
        "minutes",
        "digest",
    )
    for result in results:
        growth = "-" if result.growth is None else f"{100 * result.growth:.2f} %"
        table.row(
            result.backend,
            result.regime,
            result.rounds,
            result.sequences,
            result.tokens,
            f"{result.mean_accept_length:.2f}",
            f"{result.nodes / max(result.rounds, 1):.1f}",
            result.chains,
            result.gathers,
            result.alarm.differing,
            f"{result.memory[0][1] / 2**20:.1f}" if result.memory else "-",
            growth,
            f"{result.seconds / 60:.1f}",
            result.digest.hexdigest()[:12],
        )
