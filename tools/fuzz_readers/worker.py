"""One harness in a process of its own: coverage-guided where atheris is installed.

Finds are written down and passed over, each kind and place once, so that a run goes on. Figures
are in ``stats.json`` of the folder, rewritten every second.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from random import Random

MEMORY_EVERY = 32
"""One run in so many is measured for memory, which makes it slower."""
LONGEST_INPUT = 1 << 17
SPACE = 3 << 30
"""Address space beyond what the process begins with: asking for terabytes fails then."""


def main(name: str, seconds: int, seed: int, folder: Path) -> None:
    corpus = folder / "corpus"
    corpus.mkdir(parents=True, exist_ok=True)
    try:
        import atheris
    except ImportError:
        atheris = None
    counted = atheris.instrument_imports(include=["specla", "jinja2"]) if atheris else nullcontext()
    with counted:
        from tools.fuzz_readers.harness import HARNESSES

        harness = HARNESSES[name]
        session = _Session(harness.run, folder)
        for index, data in enumerate(harness.seeds()):
            (corpus / f"seed-{index}").write_bytes(data)
            session.one(data)  # much is imported when it is needed: here, so that it is counted
    _limit_memory()
    if atheris is None:
        _plain(session, harness.mutate, [*harness.seeds()], seconds, seed)
        return

    def mutate(data: bytes, most: int, chosen: int) -> bytes:
        made = harness.mutate(data, Random(chosen))
        return made if len(made) <= most else data

    options = [
        sys.argv[0],
        f"-max_total_time={seconds}",
        f"-seed={seed}",
        f"-max_len={LONGEST_INPUT}",
        "-len_control=0",
        "-timeout=60",
        "-rss_limit_mb=0",
        "-reload=0",
        f"-artifact_prefix={folder}/died-",
        str(corpus),
    ]
    atheris.Setup(options, session.one, custom_mutator=mutate)
    atheris.Fuzz()


def _plain(session: _Session, mutate, seeds, seconds: int, seed: int) -> None:  # type: ignore[no-untyped-def]
    """Without coverage: mutations of the seeds, and of mutations that came out otherwise."""
    random, pool, seen = Random(seed), list(seeds), set()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = mutate(random.choice(pool), random)[:LONGEST_INPUT]
        outcome = session.one(data)
        if outcome not in seen:
            seen.add(outcome)
            pool.append(data)


class _Session:
    def __init__(self, run, folder: Path) -> None:  # type: ignore[no-untyped-def]
        from tools.fuzz_readers.contract import Broken, check

        self._run, self._folder, self._check, self._broken = run, folder, check, Broken
        self._counts: Counter[str] = Counter()
        self._finds: dict[str, str] = {}
        self._written = 0.0
        self._runs = 0

    def one(self, data: bytes) -> str:
        self._runs += 1
        found = self._check(self._run, bytes(data), memory=self._runs % MEMORY_EVERY == 0)
        if isinstance(found, self._broken):
            outcome = f"{found.kind}: {found.place}"
            if outcome not in self._finds:
                path = self._folder / f"find-{len(self._finds)}"
                path.write_bytes(data)
                self._finds[outcome] = f"{path.name}: {found.detail}"
                self._write()
        else:
            outcome = found
        self._counts[outcome] += 1
        if time.monotonic() > self._written + 1:
            self._write()
        return outcome

    def _write(self) -> None:
        self._written = time.monotonic()
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        stats = {
            "runs": self._runs,
            "peak_kib": peak,
            "outcomes": dict(self._counts.most_common()),
            "finds": self._finds,
        }
        (self._folder / "stats.json").write_text(json.dumps(stats, indent=1))


def _limit_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    most = pages * resource.getpagesize() + SPACE
    resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))
