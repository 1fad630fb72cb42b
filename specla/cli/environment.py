"""Everything about the environment that decides what specla can do here, as JSON-able values."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from specla.cli.machine import cpu_levels, memory, processor, system
from specla.cli.packages import Package, packages, usable

NEEDS = {
    "numba": ("numpy", "llvmlite", "numba"),
    "numpy": ("numpy",),
    "triton": ("torch", "triton"),
}
"""Packages without which a backend is not even tried: their import might end the process."""

VARIABLES = (
    *("SPECLA_THREADS", "SPECLA_CPU_LEVEL", "SPECLA_DEVICE", "SPECLA_TRACEBACK"),
    "SPECLA_TRITON_GRAPHS",
    *("DFLASH_SPECLA", "DFLASH_SPECLA_TOPK", "DFLASH_SPECLA_CONDITIONAL_DRAFT"),
    *("DFLASH_SPECLA_FUSED_COMMIT",),
    *("NUMBA_CACHE_DIR", "NUMBA_DISABLE_JIT", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"),
    *("TRITON_INTERPRET", "TRITON_CACHE_DIR", "TRITON_HOME"),
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
)
"""Environment variables that change what specla does, or what torch shows it."""


def environment() -> dict[str, Any]:
    """One entry per section; a section that can't be found out is {"problem": why}."""
    import specla

    found = packages()
    return {
        "specla": {"version": specla.__version__, "folder": str(Path(specla.__file__).parent)},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
            "executable": sys.executable,
        },
        "system": _guarded(system),
        "cpu": _guarded(lambda: _cpu(found)),
        "memory": _guarded(memory),
        "packages": found,
        "backends": _guarded(lambda: _backends(found)),
        "gpus": _guarded(lambda: _gpus(found)),
        "caches": _guarded(lambda: _caches(found)),
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
    }


def _guarded(section: Callable[[], Any]) -> Any:
    """Somebody whose environment is broken needs the other sections all the more."""
    try:
        return section()
    except (Exception, SystemExit) as error:
        return {"problem": f"{type(error).__name__}: {error}"}


def _cpu(found: dict[str, Package]) -> dict[str, Any]:
    facts = processor()
    why = _in_the_way("numba", found)
    return facts | ({"problem": why} if why else _guarded(cpu_levels))


def _backends(found: dict[str, Package]) -> list[dict[str, Any]]:
    """As `specla backends` lists them."""
    from specla.cli.backends import listed

    return listed({name: why for name in NEEDS if (why := _in_the_way(name, found))})


def _in_the_way(backend: str, found: dict[str, Package]) -> str | None:
    """Why a backend must not be tried: a package of it can't be imported."""
    for name in NEEDS[backend]:
        if (why := found[name]["problem"]) is not None:
            return f"package {name} {found[name]['version']}: {why}; install it anew"
    return None


def _gpus(found: dict[str, Package]) -> dict[str, Any]:
    """problem: why there is none to use.  devices: those that torch finds."""
    torch = found["torch"]
    if not usable(torch):
        state = f"broken: {torch['problem']}" if torch["problem"] else "not installed"
        return {"problem": f"it takes torch to look for one, which is {state}", "devices": []}
    from specla.backends.triton.gpus import gpus, no_gpu

    why = no_gpu()
    return {
        "problem": why and f"torch finds none: {why}",
        "devices": [gpu.facts() for gpu in gpus()],
    }


def _caches(found: dict[str, Package]) -> list[dict[str, Any]]:
    from specla.backends.triton.code_folder import code_folder
    from specla.cli.cache_folders import described, numba_folders

    folders: list[Path] = []
    if usable(found["numba"]) and _in_the_way("numba", found) is None:
        # a backend that can't be imported is told of elsewhere
        with suppress(Exception):
            folders = numba_folders()
    return [
        *(described("numba", path) for path in folders),
        described("triton", code_folder()),
    ]
