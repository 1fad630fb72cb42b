"""Where Triton keeps compiled kernels between runs. Imports neither torch nor Triton."""

from __future__ import annotations

import os
from pathlib import Path

from specla.errors import OptionError
from specla.folders import writable

VARIABLE = "TRITON_CACHE_DIR"


def code_folder() -> Path:
    """By Triton's environment variables; nobody has made it before the first compilation."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    home = os.environ.get("TRITON_HOME")
    return Path(os.path.expanduser("~") if home is None else home) / ".triton" / "cache"


def require_folder() -> None:
    """Raises OptionError where Triton would fail at the first kernel."""
    if os.environ.get(VARIABLE) == "":
        raise OptionError(f"{VARIABLE} is empty; unset it, or name a folder for compiled kernels")
    if not writable(folder := code_folder()):
        raise OptionError(
            f"Triton can't keep compiled kernels in {folder}; set {VARIABLE} to a folder that can "
            f"be written"
        )


def is_empty(folder: Path) -> bool:
    """Whether nothing lies there yet."""
    try:
        return next(folder.iterdir(), None) is None
    except FileNotFoundError:
        return True
    except OSError:
        return False
