"""Parts of the check: each under a share of the time, none able to stop the others."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from gpu.sizes import Sizes
from gpu.timing import Timer


class Clock:
    """Time that is left, of the whole check or of a part."""

    def __init__(self, seconds: float) -> None:
        self.start = time.monotonic()
        self.end = self.start + seconds

    @property
    def left(self) -> float:
        """Seconds; negative when it is over."""
        return self.end - time.monotonic()

    @property
    def over(self) -> bool:
        """Whether nothing new should begin."""
        return self.left <= 0

    @property
    def passed(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self.start


@dataclass
class Findings:
    """What a part found out: filled while it runs, so that a failure leaves what came before.

    figures: JSON-able.  problems: outputs that are wrong, a line each.  left_out: cases that were
    not reached in time.
    """

    figures: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    def rows(self, name: str) -> list[dict[str, Any]]:
        """A list among the figures."""
        found: list[dict[str, Any]] = self.figures.setdefault(name, [])
        return found

    def problem(self, line: str) -> None:
        """Note a wrong output, and say so at once."""
        self.problems.append(line)
        print(f"WRONG: {line}", flush=True)


@dataclass
class Setting:
    """What all parts work with. clock: of the part that runs."""

    sizes: Sizes
    device: str
    rehearsal: bool
    timer: Timer
    clock: Clock

    def backend(self) -> Any:
        """A new GPU backend."""
        from specla.backends.triton.backend import TritonBackend

        return TritonBackend(self.device)


Part = Callable[[Setting, Findings], None]


def run_parts(
    setting: Setting, parts: dict[str, tuple[float, Part]], chosen: Iterable[str], seconds: float
) -> dict[str, dict[str, Any]]:
    """Run the chosen parts one after another; time that one leaves goes to those behind it.

    parts: share of the time and function by name.
    """
    whole, results = Clock(seconds), {}
    names = [name for name in parts if name in set(chosen)]
    for index, name in enumerate(names):
        share = parts[name][0] / sum(parts[other][0] for other in names[index:])
        print(f"\n## {name}\n", flush=True)
        setting.clock = Clock(whole.left * share)
        results[name] = _run(setting, name, parts[name][1])
    return results


def _run(setting: Setting, name: str, part: Part) -> dict[str, Any]:
    """status: done, incomplete (out of time), or failed."""
    findings = Findings()
    error = None
    if setting.clock.over:
        findings.left_out.append("all of it")
    else:
        try:
            part(setting, findings)
        except Exception as failure:
            error = f"{type(failure).__name__}: {' '.join(str(failure).split())}"
            traceback.print_exc(file=sys.stderr)
            print(f"FAILED: {name}: {error}", flush=True)
    status = "incomplete" if findings.left_out else "done"
    if error is not None or findings.problems:
        status = "failed"
    if findings.left_out:
        print(f"\nout of time, left out: {', '.join(findings.left_out)}", flush=True)
    return {
        "status": status,
        "error": error,
        "problems": findings.problems,
        "left_out": findings.left_out,
        "seconds": None if setting.rehearsal else round(setting.clock.passed, 1),
        **findings.figures,
    }
