"""What the benchmarks share: options, the machine in a line, interleaved runs, tables."""

from __future__ import annotations

import argparse
import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any

from specla.backends.base import Backend
from specla.backends.options import usable_cpus
from specla.models.load import bundled_model

PAUSE = 0.05
"""Seconds between two engines' turns: threads that spin for work have gone to sleep by then."""


def argument_parser(doc: str) -> argparse.ArgumentParser:
    """A parser described by the first line of a module's docstring."""
    return argparse.ArgumentParser(description=doc.splitlines()[0])


def add_backend_options(parser: argparse.ArgumentParser) -> None:
    """--threads and --level."""
    parser.add_argument("--threads", type=int, default=usable_cpus())
    parser.add_argument("--level", help="CPU level, for example avx2; the best by default")


def add_model_option(parser: argparse.ArgumentParser) -> None:
    """--model, the bundled one by default."""
    parser.add_argument("--model", type=Path, default=bundled_model())


def numba_backend(args: argparse.Namespace) -> Any:
    """The compiled backend as the options ask for it."""
    from specla.backends.numba.backend import NumbaBackend

    return NumbaBackend(args.level, args.threads)


def machine_line(backend: Backend | None = None) -> str:
    """Processor, cores, versions and, for a compiled backend, its level and threads."""
    model = platform.processor() or platform.machine()
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line for line in lines if line.startswith("model name")).split(": ", 1)[1]
    packages = ", ".join(f"{name} {version(name)}" for name in ("numpy", "numba"))
    line = f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, {packages}"
    level, threads = getattr(backend, "level", None), getattr(backend, "threads", None)
    return line if level is None else f"{line}; level {level}, {threads} threads"


def interleaved(
    functions: Mapping[str, Callable[[], float]], runs: int, pause: float = 0.0
) -> dict[str, list[float]]:
    """Results of A B C A B C ...: a list of `runs` numbers for each function."""
    results: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(runs):
        for name, function in functions.items():
            time.sleep(pause)
            results[name].append(function())
    return results


def median_ratio(numerators: Sequence[float], denominators: Sequence[float]) -> float:
    """Median of the ratios of neighbouring runs: drift of the machine cancels."""
    return statistics.median(a / b for a, b in zip(numerators, denominators, strict=True))


class Table:
    """A Markdown table, printed row by row as results come in."""

    def __init__(self, *columns: str) -> None:
        print("| " + " | ".join(columns) + " |")
        print("|" + "---|" * len(columns), flush=True)

    def row(self, *cells: object) -> None:
        """One line; floats with three significant digits."""
        print("| " + " | ".join(map(_cell, cells)) + " |", flush=True)


def _cell(value: object) -> str:
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    digits = 2 - math.floor(math.log10(abs(value))) if value else 0
    return f"{value:.{min(max(digits, 0), 4)}f}"


class Neighbours:
    """How busy other processes kept the machine meanwhile: a share of all its cores.

    pids: processes that belong to the measurement, this one included anyway. Linux only.
    """

    def __init__(self, pids: Iterable[int] = ()) -> None:
        self._pids = {os.getpid(), *pids}
        self._start = self._read()

    def share(self) -> float:
        """Since the object was made; NaN where it can't be told."""
        seconds, busy, own = (b - a for a, b in zip(self._start, self._read(), strict=True))
        if not busy:
            return float("nan")
        return max(0.0, busy - own) / (seconds * (os.cpu_count() or 1))

    def line(self) -> str:
        """For the end of a report."""
        share = self.share()
        judgement = "; measure again on an idle machine" if share > 0.05 else ""
        return f"other processes used {100 * share:.0f} % of the machine{judgement}"

    def _read(self) -> tuple[float, float, float]:
        busy = own = 0.0
        with suppress(OSError):
            tick = os.sysconf("SC_CLK_TCK")
            fields = [int(x) for x in Path("/proc/stat").read_text().split("\n")[0].split()[1:9]]
            user, nice, system, _idle, _iowait, irq, soft, steal = fields
            busy = (user + nice + system + irq + soft + steal) / tick
            for pid in self._pids:
                parts = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
                # user and system time, its own and that of children that have ended
                own += sum(map(int, parts[11:15])) / tick
        return time.monotonic(), busy, own
