"""Writing a file so that its name shows either nothing new or all of it, even after a kill."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from specla.errors import OptionError
from specla.models.gguf.text import shown_path
from specla.regular_file import may_be_replaced


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[tuple[BinaryIO, Path]]:
    """A new file beside `path` that takes its place when the block ends without an error.

    Yields (file, its present path). On an error the new file is deleted; after a kill it stays
    behind as `.NAME.XXXXXXXX.part`. Raises OptionError, one line, when the folder can't take it, or
    when `path` is a folder, a device, a pipe or a link.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        # renaming over a device would take it from everybody
        if not may_be_replaced(path):
            raise OptionError(f"{shown_path(path)}: is no regular file; name another output")
        file = open(temporary, "xb")  # noqa: SIM115 (closed below, before the rename)
        try:
            with file:
                yield file, temporary
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise OptionError(f"{shown_path(path)}: can't write it: {error.strerror}") from None
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    # so that the new name survives a power cut; not every system lets a folder be synced
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
