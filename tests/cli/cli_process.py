"""The command line in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


def command(*argv: object) -> list[str]:
    """The command in a process of its own."""
    return [sys.executable, "-m", "specla", *map(str, argv)]


def environment(**changes: str) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(REPOSITORY), os.environ.get("PYTHONPATH")]))
    return {**os.environ, "PYTHONPATH": path, **changes}


def start(*argv: object) -> subprocess.Popen[bytes]:
    """The command in its own process, outputs as pipes, no input."""
    return subprocess.Popen(
        command(*argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        preexec_fn=heed_sigint,
    )


def heed_sigint() -> None:
    """A shell's background job ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
