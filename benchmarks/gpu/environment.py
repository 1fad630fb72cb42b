"""Which GPU, driver and versions these are, and how fast the GPU copies its own memory."""

from __future__ import annotations

import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from harness import Table

import specla
from gpu.parts import Findings, Setting
from gpu.timing import cache_bytes, shown

PACKAGES = ("torch", "triton", "numpy", "flash-linear-attention")
UNKNOWN = "unknown"


def environment(setting: Setting, findings: Findings) -> None:
    """Everything one must know to compare two results."""
    findings.figures["device"] = _device(setting.device)
    findings.figures["versions"] = {
        "specla": specla.__version__,
        "revision": _first_word("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"),
        "python": platform.python_version(),
        **_versions(),
    }
    bandwidth = setting.timer.copy_bandwidth(setting.device, setting.sizes.copy_bytes)
    findings.figures["copy_bandwidth"] = bandwidth
    table = Table("what", "is")
    for group in ("device", "versions"):
        for name, value in findings.figures[group].items():
            table.row(name, value)
    table.row("copy, read + written, GB/s", shown(bandwidth, 1e-9))


def _device(name: str) -> dict[str, Any]:
    import torch

    if not name.startswith("cuda"):
        return {"name": "none: Triton's interpreter"}
    from specla.backends.triton.gpus import gpu

    return {
        **gpu(torch.device(name).index).facts(),
        "cache_bytes": cache_bytes(name),
        "multiprocessors": torch.cuda.get_device_properties(name).multi_processor_count,
    }


def _first_word(*command: str) -> str:
    """Of what a command prints, if it succeeds."""
    with suppress(OSError, subprocess.SubprocessError, IndexError):
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
        return done.stdout.split()[0]
    return UNKNOWN


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found
