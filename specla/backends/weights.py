"""A weight matrix as a file holds it: the value that model code hands to a backend."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class WeightSource:
    """One matrix of a product ``y = W x``, still in its file encoding.

    name: tensor name, for messages.  kind: GGML type name ("F32", "F16", "BF16", "Q8_0", ...).
    rows: output features.  cols: input features.
    data: uint8 [rows, row_bytes], C order, usually a view of a memory map; never written.
    """

    name: str
    kind: str
    rows: int
    cols: int
    data: np.ndarray

    def release(self) -> None:
        """Give the pages of a memory map back: a backend that has made its own copy needs them no
        more. ``data`` stays readable, at the price of a page fault."""
        base: Any = self.data
        while isinstance(base, (np.ndarray, memoryview)):
            base = base.base if isinstance(base, np.ndarray) else base.obj
        if not isinstance(base, mmap.mmap) or not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = _address(self.data) - _address(np.frombuffer(base, np.uint8))
        # whole pages inside: a neighbour's may be in use
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        last = (start + self.data.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            base.madvise(mmap.MADV_DONTNEED, first, last - first)


def _address(array: np.ndarray) -> int:
    address: int = array.__array_interface__["data"][0]
    return address
