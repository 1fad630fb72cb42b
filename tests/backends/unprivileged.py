"""Processes that may write nowhere, also when the tests are run by the superuser."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from specla.backends.numba import code_cache

_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE = 24, 1


@pytest.fixture
def package(tmp_path: Path) -> Iterator[Path]:
    """A copy of the package, without any compiled code, that can't be written."""
    target = tmp_path / "lib"
    source = code_cache._PACKAGE.parent.parent
    shutil.copytree(source, target / "specla", ignore=shutil.ignore_patterns("__pycache__"))
    for path in [target, *target.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    yield target
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755)


def run_unprivileged(
    package: Path, arguments: Sequence[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Python with a copy of the package, heeding the mode of every folder. Environment: as given,
    with a home folder that can't be written."""
    keep = {key: os.environ[key] for key in ("PATH", "LANG") if key in os.environ}
    site = [path for path in sys.path if path.endswith("site-packages")]
    path = os.pathsep.join([str(package), *site])
    try:
        return subprocess.run(
            [sys.executable, *arguments],
            env=keep | {"PYTHONPATH": path, "HOME": str(package)} | environment,
            cwd="/",
            capture_output=True,
            text=True,
            preexec_fn=_heed_modes if os.geteuid() == 0 else None,
        )
    except subprocess.SubprocessError:
        pytest.skip("the superuser can't give up its right to write everywhere")


def _heed_modes() -> None:
    """Drop the capability to overrule modes, which takes effect with the program that is run."""
    if ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, 0, 0, 0):
        raise OSError("prctl")
