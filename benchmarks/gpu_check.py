"""One check of everything on a GPU: bytes first, then times, then whether the goals were met.

\b
  python benchmarks/gpu_check.py --out results.json
  python benchmarks/gpu_check.py --only recurrence --only products
  python benchmarks/gpu_check.py --rehearse

Takes --minutes at most, but for what has begun when they are over: a part that runs out of time
says which cases it left out. No speed is shown for anything whose output was wrong. --rehearse runs
the same code in Triton's interpreter, tiny and without times, on a machine without a GPU, in a
minute or two. Exit status: 0, 1 if a part failed, 2 if nothing could be begun. docs/benchmarks.md
explains the figures.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from harness import Table

from specla.errors import OptionError, SpeclaError
from specla.models.convert.atomic import replacing
from specla.regular_file import may_be_replaced

# name -> share of the time; a module and a function of this name in gpu/
SHARES = {
    "correctness": 0.38,
    "environment": 0.02,
    "recurrence": 0.2,
    "products": 0.15,
    "decoding": 0.25,
}


@click.command(help=__doc__)
@click.option("--out", type=click.Path(path_type=Path), help="write all figures there, as JSON")
@click.option(
    "--minutes",
    type=click.FloatRange(0.1, 600),
    default=8.0,
    show_default=True,
    help="time for all parts together",
)
@click.option("--only", type=click.Choice(list(SHARES)), multiple=True, help="may be repeated")
@click.option("--device", default="cuda:0", show_default=True, help="which GPU")
@click.option("--rehearse", is_flag=True, help="tiny shapes in Triton's interpreter, no times")
def command(
    out: Path | None, minutes: float, only: tuple[str, ...], device: str, rehearse: bool
) -> int:
    from gpu.devices import gpu_device, rehearsal_device

    if math.isnan(minutes):  # which a range lets pass
        raise OptionError("--minutes is nan; give a number of minutes")
    if out is not None:
        _check_place(out)
    place = rehearsal_device() if rehearse else gpu_device(device)
    results, eager = _run(place, rehearse, only or tuple(SHARES), 60 * minutes)
    report = {"benchmark": "gpu_check", "rehearsal": rehearse, "minutes": minutes, **results}
    report["timed_without_graphs"] = eager
    _verdicts(report)
    if out is not None:
        with replacing(out) as (file, _):
            file.write((json.dumps(report, indent=1, default=str) + "\n").encode())
    return 1 if any(part["status"] == "failed" for part in report["parts"].values()) else 0


def _check_place(out: Path) -> None:
    """Before the minutes, not after them."""
    if not out.parent.is_dir():
        raise OptionError(f"--out {out}: there is no folder {out.parent}; make it first")
    try:
        if not may_be_replaced(out):
            raise OptionError(f"--out {out}: it is no regular file; name another place")
        tempfile.TemporaryFile(dir=out.parent).close()
    except OSError as error:
        raise OptionError(f"--out {out}: {error.strerror}; name another place") from None


def _run(
    place: str, rehearse: bool, chosen: Sequence[str], seconds: float
) -> tuple[dict[str, Any], list[str]]:
    """All parts' results, and what had to be timed without a graph."""
    # only now may torch and triton be imported
    from gpu.parts import Clock, Setting, run_parts
    from gpu.sizes import FULL, TINY
    from gpu.timing import Timer

    timer = Timer(rehearsal=rehearse)
    setting = Setting(TINY if rehearse else FULL, place, rehearse, timer, Clock(seconds))
    if rehearse:
        print("rehearsal: tiny shapes in Triton's interpreter, no times", flush=True)
    parts = {
        name: (share, getattr(import_module(f"gpu.{name}"), name)) for name, share in SHARES.items()
    }
    return {"parts": run_parts(setting, parts, chosen, seconds)}, timer.eager


def _verdicts(report: dict[str, Any]) -> None:
    from gpu.goals import judge

    judged = judge(report["parts"])
    report["goals"] = [one.report() for one in judged]
    print("\n## parts\n")
    table = Table("part", "status", "problems")
    for name, part in report["parts"].items():
        table.row(name, part["status"], len(part["problems"]) + (part["error"] is not None))
    print("\n## goals for an H200\n")
    table = Table("goal", "wanted", "found", "verdict")
    for one in judged:
        found = "-" if one.found is None else one.found
        table.row(one.goal.name, one.goal.wanted, found, one.verdict)


def main(argv: Sequence[str] | None = None) -> int:
    """Run with arguments; the exit status."""
    try:
        status: Any = command.main(
            list(sys.argv[1:] if argv is None else argv), "gpu_check.py", standalone_mode=False
        )
        return int(status or 0)
    except click.ClickException as error:
        message = f"{error.format_message().rstrip('.')}; see 'gpu_check.py --help'"
    except SpeclaError as error:
        message = str(error)
    print(f"gpu_check: error: {message}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
