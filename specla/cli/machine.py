"""The machine below specla: system, processor, memory. Imports no package before it must."""

from __future__ import annotations

import os
import platform
import re
from pathlib import Path
from typing import Any

FEATURES = (
    *("avx2", "fma", "avxvnni", "avx512f", "avx512bw", "avx512vl", "avx512vnni"),
    *("neon", "dotprod", "i8mm"),
)
"""What compiled kernels can gain from, by LLVM's names."""


def system() -> dict[str, Any]:
    """os: with its version.  release: of the kernel.  machine: architecture."""
    return {
        "os": _distribution() or platform.platform(terse=True),
        "release": platform.release(),
        "machine": platform.machine(),
    }


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:  # not a Linux with such a file
        return None


def processor() -> dict[str, Any]:
    """model; present and usable CPUs; quota: CPUs' worth of time of the container, None: all."""
    from specla.backends.options import cpu_quota, usable_cpus

    return {
        "model": cpu_model(),
        "present": os.cpu_count(),
        "usable": usable_cpus(),
        "quota": cpu_quota(),
    }


def cpu_model() -> str:
    """The processor's name, as far as the system tells it."""
    found = re.search(r"^model name\s*:\s*(.+)$", _read("/proc/cpuinfo"), flags=re.MULTILINE)
    return found[1].strip() if found else platform.processor() or platform.machine()


def cpu_levels() -> dict[str, Any]:
    """levels: which of the Numba backend's this processor can run, slowest first.  level: the one
    that is used.  features: those of FEATURES that it has. Imports Numba."""
    from specla.backends.numba.features import LEVELS, choose_level, has, supported

    return {
        "levels": [level for level in LEVELS if supported(level)],
        "level": choose_level(),
        "features": [name for name in FEATURES if has(name)],
    }


def memory() -> dict[str, Any]:
    """Bytes: total; available now; limit of the container. None: can't be told, or no limit."""
    available = re.search(r"^MemAvailable:\s*(\d+) kB", _read("/proc/meminfo"), flags=re.MULTILINE)
    limit = _read("/sys/fs/cgroup/memory.max").strip()
    return {
        "total": physical_memory(),
        "available": int(available[1]) * 1024 if available else None,
        "limit": int(limit) if limit.isdigit() else None,
    }


def physical_memory() -> int | None:
    """Bytes of the machine's memory, None where it can't be told."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
