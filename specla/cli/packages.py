"""The packages that specla computes with: versions, and whether they can be imported.

The large ones are tried in a process of their own: a package built for another processor or
driver may take its process down with it.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any

TRIED = ("numpy", "numba", "llvmlite", "gguf", "tokenizers", "torch", "triton")
PATIENCE = 120.0
"""Seconds until an import counts as one that hangs."""

Package = dict[str, Any]
"""version (None: not installed), problem (None: none, or not installed)."""


def packages() -> dict[str, Package]:
    """All of TRIED, by name."""
    # all at once: torch alone takes seconds
    started = {name: _start(name) for name in TRIED if _is_there(name)}
    return {name: _package(name, started.get(name)) for name in TRIED}


def usable(package: Package) -> bool:
    """Whether a package is installed and can be imported."""
    return package["version"] is not None and package["problem"] is None


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def _package(name: str, tried: subprocess.Popen[str] | OSError | None) -> Package:
    if tried is None:
        return {"version": _recorded(name), "problem": None}
    said, problem = _outcome(tried)
    return {"version": _recorded(name) or said or "unknown", "problem": problem}


def _recorded(name: str) -> str | None:
    """The version that was installed; None without a record: Triton comes by other names, too."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None
    except Exception:  # a damaged record
        return None


_IMPORT = """
import sys
# this process's path, not one that begins with the present folder
sys.path[:] = sys.argv[2:]
print(getattr(__import__(sys.argv[1]), "__version__", ""))
"""


def _start(name: str) -> subprocess.Popen[str] | OSError:
    try:
        return subprocess.Popen(
            [sys.executable, "-c", _IMPORT, name, *sys.path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        )
    except OSError as error:
        return error


def _outcome(process: subprocess.Popen[str] | OSError) -> tuple[str | None, str | None]:
    """The version that the package says it has, and what is wrong with it."""
    if isinstance(process, OSError):
        return None, f"it can't be tried: {process}"
    try:
        printed, said = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return None, f"importing it takes more than {PATIENCE:.0f} s"
    if process.returncode == 0:
        return next(reversed(printed.split()), None), None
    return None, _failure(process.returncode, said)


def _failure(code: int, said: str) -> str:
    if code < 0:
        known = -code in signal.Signals.__members__.values()
        died = signal.Signals(-code).name if known else f"signal {-code}"
        return f"importing it ends the process: {died}"
    lines = said.strip().splitlines()
    return f"importing it fails: {lines[-1] if lines else f'exit code {code}'}"
