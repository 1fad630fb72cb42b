"""Memory for weights: many matrices side by side in large pages.

A step reads every weight once, so with ordinary pages it also looks up a page for every 4 KiB.
"""

from __future__ import annotations

import math
import mmap
import threading
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

CHUNK = 64 << 20
LARGE_PAGE = 2 << 20
_PRIVATE: dict[str, int] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
)
LINE = 64
"""Bytes of a cache line, at which every array begins."""


class Arena:
    """Hands out zeroed arrays. A chunk of memory lives as long as any array in it."""

    def __init__(self) -> None:
        self._chunk: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._used = 0
        self._lock = threading.Lock()

    def zeros(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """A new array of zeros."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        with self._lock:
            start = -(-self._used // LINE) * LINE
            if start + size > len(self._chunk):
                self._chunk, start = _chunk(size), 0
            self._used = start + size
            part = self._chunk[start : self._used]
        array: npt.NDArray[Any] = part.view(dtype).reshape(shape)
        return array


def _chunk(size: int) -> npt.NDArray[np.uint8]:
    """Zeroed memory for ``size`` bytes at least, in large pages where the system has them."""
    whole = max(CHUNK, -(-size // LARGE_PAGE) * LARGE_PAGE)
    try:
        # private: shared memory, the default, gets no large pages
        memory = mmap.mmap(-1, whole, **_PRIVATE)
    except OSError as error:
        raise MemoryError(f"no memory for {whole >> 20} MiB of weights") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with suppress(OSError):
            memory.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(memory, np.uint8)
