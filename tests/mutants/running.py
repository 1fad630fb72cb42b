"""Runs what must catch a mutant, in a process of its own, and judges how that ended."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mutants.mutant import Fuzz, Named
from specla.fuzz.levels import LEVELS

TESTS = Path(__file__).resolve().parents[1]
LIMIT = 180
"""Seconds; a mutant that hangs isn't caught."""

CI_ROUNDS = {name: level.short for name, level in LEVELS.items()}
"""Rounds of ``specla fuzz`` in CI, by level."""


@dataclass(frozen=True)
class Verdict:
    """caught: the catcher ran and found a difference.  passed: it ran and found none.  Neither: it
    didn't get as far, for a reason that ``output``, all of it, tells."""

    caught: bool
    passed: bool
    output: str

    @property
    def end(self) -> str:
        """Enough of the output for a message."""
        return self.output[-4000:]


def pytest_arguments(tests: Sequence[str]) -> list[str]:
    """Of ``python -m mutants NAME``, for named tests."""
    return ["pytest", "-x", "-q", "-rf", "--tb=short", *tests]


def fuzz_arguments(catcher: Fuzz) -> list[str]:
    """Of ``python -m mutants NAME``, for the fuzzer."""
    rounds, minutes = str(CI_ROUNDS[catcher.level]), str(LIMIT / 60)
    return [
        *("fuzz", "--level", catcher.level, "--backend", catcher.backend, "--seed", "0"),
        *("--rounds", rounds, "--minutes", minutes, "--no-shrink", "--quiet"),
    ]


def judge(name: str, catcher: Fuzz | Named | Sequence[Named]) -> Verdict:
    """Run a catcher, or several named tests at once, with the mutant ``name`` on.

    Raises subprocess.TimeoutExpired for one that hangs.
    """
    if isinstance(catcher, Fuzz):
        return _run(name, fuzz_arguments(catcher))
    tests = [catcher] if isinstance(catcher, Named) else catcher
    verdict = _run(name, pytest_arguments([named.test for named in tests]), len(tests) > 1)
    # an error of collection or of a fixture is no failed test
    failed = "\nFAILED " in verdict.output
    return replace(verdict, caught=verdict.caught and failed)


def _run(name: str, arguments: list[str], many: bool = False) -> Verdict:
    # pytest-xdist tells its workers' children things that aren't meant for them
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    path = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    with tempfile.TemporaryDirectory(prefix="specla-mutant-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "mutants", name, *arguments],
            # where the fuzzer saves what it finds; tests are named from the root
            cwd=TESTS.parent if arguments[0] == "pytest" else folder,
            env=environment | {"PYTHONPATH": path, "HYPOTHESIS_STORAGE_DIRECTORY": folder},
            capture_output=True,
            text=True,
            timeout=8 * LIMIT if many else LIMIT + 30,
        )
    return Verdict(done.returncode == 1, done.returncode == 0, done.stdout + done.stderr)
