"""Where Triton keeps compiled kernels between runs. Imports neither torch nor Triton."""

from __future__ import annotations

import os
from pathlib import Path


def code_folder() -> Path:
    """By Triton's environment variables; nobody has made it before the first compilation."""
    if given := os.environ.get("TRITON_CACHE_DIR"):
        return Path(given)
    return Path(os.environ.get("TRITON_HOME") or os.path.expanduser("~")) / ".triton" / "cache"


def is_empty(folder: Path) -> bool:
    """Whether nothing lies there, as far as one can see."""
    try:
        return next(folder.iterdir(), None) is None
    except OSError:
        return True
