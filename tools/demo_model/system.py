"""Process settings that make torch on a CPU faster."""

from __future__ import annotations

import ctypes
import sys


def keep_freed_memory() -> None:
    """Let glibc keep freed memory, instead of mapping and clearing it anew for every tensor.

    Training is up to twice as fast with it. Does nothing on other C libraries.
    """
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    trim_threshold, top_pad, mmap_threshold = -1, -2, -3
    mallopt(mmap_threshold, 1 << 30)
    mallopt(trim_threshold, 2**31 - 1)
    mallopt(top_pad, 64 << 20)
