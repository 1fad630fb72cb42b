"""Opening what a user named: only regular files, and without waiting for a pipe's writer."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO


def open_regular(path: str | os.PathLike[str]) -> BinaryIO:
    """Open for reading. Raises OSError, with a reason, for devices, pipes, sockets and folders.

    A device such as /dev/zero would be read for ever, and a pipe may have no writer.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "it is not a regular file")
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def may_be_replaced(path: Path) -> bool:
    """Whether a file may be put in the path's place: nothing is there, or a regular file is.

    Symbolic links are not followed: replacing one would leave its target untouched and unlinked.
    """
    try:
        return stat.S_ISREG(os.lstat(path).st_mode)
    except FileNotFoundError:
        return True
