"""Folders in which compiled kernels are kept between runs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from specla.folders import writable


def numba_folders() -> list[Path]:
    """Where the Numba backend looks for code, first choice first. Imports Numba."""
    from specla.backends.numba.code_cache import folders

    return list(folders())


def described(of: str, path: Path) -> dict[str, Any]:
    """of: whose code.  folder; writable: it, or what it would be made in; exists; files; bytes."""
    files, size = _content(path)
    return {
        "of": of,
        "folder": str(path),
        "exists": path.is_dir(),
        "writable": writable(path),
        "files": files,
        "bytes": size,
    }


def _content(path: Path) -> tuple[int, int]:
    """Files below a folder and their bytes; what can't be read doesn't count."""
    count = size = 0
    for folder, _, names in os.walk(path):
        for name in names:
            try:
                size += os.lstat(os.path.join(folder, name)).st_size
            except OSError:
                continue
            count += 1
    return count, size
