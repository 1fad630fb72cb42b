"""python -m tools.fuzz_readers HARNESS... [--minutes M] [--seed S] [--out FOLDER]"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from tools.fuzz_readers.harness import HARNESSES

_PROGRESS = re.compile(r"#(\d+)\s+(\w+)\s+cov: (\d+) ft: (\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz_readers", description=__doc__)
    parser.add_argument("harness", nargs="+", choices=[*HARNESSES, "all"])
    parser.add_argument("--minutes", type=float, default=1.0, help="for each harness")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("fuzz-readers"))
    given = parser.parse_args()
    names = list(HARNESSES) if "all" in given.harness else given.harness
    found = [_run(name, round(given.minutes * 60), given.seed, given.out / name) for name in names]
    return 1 if any(found) else 0


def _run(name: str, seconds: int, seed: int, folder: Path) -> bool:
    """Run a harness and print its line; whether it found anything."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "stats.json").unlink(missing_ok=True)
    command = [sys.executable, "-m", "tools.fuzz_readers.worker", name]
    log = folder / "log.txt"
    with log.open("w") as file:
        done = subprocess.run(
            [*command, str(seconds), str(seed), str(folder)], stdout=file, stderr=file, check=False
        )
    text = log.read_text(errors="replace")
    died = done.returncode != 0
    stats = {"runs": 0, "finds": {}, "outcomes": {}, "peak_kib": 0}
    if (folder / "stats.json").exists():
        stats = json.loads((folder / "stats.json").read_text())
    print(f"{name:12} {stats['runs']:9,} runs, {stats['runs'] / seconds:7,.0f} a second, "
          f"{_coverage(text)}, peak {stats['peak_kib'] // 1024} MiB, finds: {len(stats['finds'])}"
          + (f", DIED with {done.returncode}: see {log}" if died else ""), flush=True)  # fmt: skip
    for place, detail in stats["finds"].items():
        print(f"  {place}\n    {detail.splitlines()[-1][:160]}")
    return died or bool(stats["finds"])


def _coverage(log: str) -> str:
    points = [(int(m[3]), m[2]) for m in _PROGRESS.finditer(log)]
    if not points:
        return "no coverage counted"
    return f"coverage {points[0][0]:,} -> {points[-1][0]:,}"


if __name__ == "__main__":
    raise SystemExit(main())
