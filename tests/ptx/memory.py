"""Memory that faults like the hardware: outside an allocation, or misaligned."""

from __future__ import annotations

import numpy as np

from ptx.errors import PtxError
from ptx.scalars import Array, unsigned

POISON = 0xFF
"""Bytes that nobody has written: NaN as a float of any width, -1 as an integer."""
_GAP = 256


class Memory:
    """A flat address space. what: its name in errors."""

    def __init__(self, what: str, size: int = 0) -> None:
        self.what = what
        self._bytes = np.full(_rounded(size), POISON, np.uint8)
        self._valid = np.zeros(len(self._bytes), np.bool_)
        self._valid[:size] = True

    @classmethod
    def of_blocks(cls, what: str, size: int, blocks: int) -> tuple[Memory, int]:
        """The same room for each block; returns how far apart these lie."""
        stride = _rounded(size) + _GAP
        memory = cls(what, stride * blocks)
        memory._valid.reshape(-1)[: stride * blocks].reshape(blocks, stride)[:, size:] = False
        return memory, stride

    def place(self, content: Array, residue: int = 0) -> int:
        """Allocate room for bytes [uint8] and write them; returns the address.

        residue: of the address modulo 256. Gaps between allocations belong to nobody.
        """
        start = _rounded(len(self._bytes) + _GAP) + residue % _GAP
        size = _rounded(start + len(content) + _GAP)
        self._bytes = _grown(self._bytes, size, POISON)
        self._valid = _grown(self._valid, size, False)
        self._bytes[start : start + len(content)] = content
        self._valid[start : start + len(content)] = True
        return start

    def content(self, address: int, size: int) -> Array:
        """A view of bytes."""
        return self._bytes[address : address + size]

    def load(self, address: Array, bits: int, parts: int = 1) -> list[Array]:
        """``parts`` neighbouring words from each address [int64]: arrays of unsigned integers."""
        words, at = self._words(address, bits, parts)
        return [words[at + part] for part in range(parts)]

    def store(self, address: Array, values: list[Array]) -> None:
        """Neighbouring words to each address; of several threads the last wins."""
        bits = values[0].dtype.itemsize * 8
        words, at = self._words(address, bits, len(values))
        for part, value in enumerate(values):
            words[at + part] = value

    def _words(self, address: Array, bits: int, parts: int) -> tuple[Array, Array]:
        size = bits // 8 * parts
        if address.size:
            if (address % size).any():
                raise PtxError(f"{self.what}: an access of {size} bytes is not aligned")
            if address.min() < 0 or address.max() + size > len(self._bytes):
                raise PtxError(f"{self.what}: an access of {size} bytes is out of bounds")
            if not (self._valid[address].all() and self._valid[address + size - 1].all()):
                raise PtxError(f"{self.what}: an access of {size} bytes is outside any array")
        return self._bytes.view(unsigned(bits)), address // (bits // 8)


def _rounded(size: int) -> int:
    return -(-size // _GAP) * _GAP


def _grown(array: Array, size: int, fill: int) -> Array:
    more = np.full(size, fill, array.dtype)
    more[: len(array)] = array
    return more
