"""What can be known of a folder before something is put there."""

from __future__ import annotations

import os
from pathlib import Path


def writable(path: Path) -> bool:
    """Whether files can be made in a folder that is there or can be made."""
    absolute = path.absolute()
    there = next(one for one in (absolute, *absolute.parents) if os.path.lexists(one))
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)
