"""One input as a file: made anew each time, since an old one may still be mapped."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FAST = Path("/dev/shm")


@contextmanager
def as_file(data: bytes, name: str = "input.gguf") -> Iterator[Path]:
    folder = _FAST if _FAST.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="specla-fuzz-", dir=folder) as made:
        path = Path(made) / name
        path.write_bytes(data)
        yield path
        os.unlink(path)
