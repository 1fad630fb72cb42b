"""Weights repacked at load: panels of 16 rows, in which one vector register serves 16 rows at once.

Integer kinds keep the file's precision. Per panel and block of 32 columns, ``quants`` has eight
vectors of 64 bytes, vector j holding columns 4 j .. 4 j + 3 of the 16 rows (byte 4 r + c % 4):

* Q8_0: 512 bytes, one per weight, signed as in the file.
* Q4_0, Q4_K: 256 bytes of unsigned ``weight + OFFSET``; the low nibbles are vectors 0..3, the high
  ones vectors 4..7.
* Q5_K: the same, then 64 bytes whose bit j is the fifth bit of vector j.
* Q6_K: the same, then 2 x 64 bytes with two more bits for each of vectors 0..3 and 4..7.

``subs`` [panels, blocks, 2, 16] are the K-quants' small integers (Q4_K, Q5_K: sub-scale, minimum;
Q6_K: the sub-scales of both halves). ``scales`` [panels, scale blocks, 1 or 2, 16] are float16
bits: d and, for Q4_K and Q5_K, dmin; a scale block is 32 columns, 256 for K-quants.

Float kinds: ``quants`` [panels, blocks, 16, 32] of float32, float16 bits or bfloat16 bits, row by
row; for bfloat16, columns i and i + 8 of each 16 are next to each other.
Rows beyond the matrix have zero scales.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from numba.core import types

from specla.backends import blocks
from specla.backends.numba.arena import Arena
from specla.backends.numba.jit import Launch, device, kernel
from specla.backends.numba.primitives import load_word, store_word
from specla.backends.numba.vector_code import address
from specla.backends.weights import WeightSource

ROWS = 16
BLOCK = 32
Q8_0, Q4_0, Q4_K, Q5_K, Q6_K, F32, F16, BF16 = range(8)
KINDS = {"Q8_0": Q8_0, "Q4_0": Q4_0, "Q4_K": Q4_K, "Q5_K": Q5_K, "Q6_K": Q6_K}
FLOAT_KINDS = {"F32": F32, "F16": F16, "BF16": BF16}
QUANT_BYTES = {Q8_0: 512, Q4_0: 256, Q4_K: 256, Q5_K: 320, Q6_K: 384}
OFFSET = {Q8_0: 128, Q4_0: 8, Q4_K: 0, Q5_K: 0, Q6_K: 32}
LARGEST = {Q8_0: 255, Q4_0: 15, Q4_K: 15, Q5_K: 31, Q6_K: 63}
SUPER_BLOCKS = (Q4_K, Q5_K, Q6_K)
WITH_MINIMUM = (Q4_K, Q5_K)
SHARED_BYTES = 1 << 20
"""Size of a matrix from which repacking is cut over threads."""


@dataclass(frozen=True)
class Panels:
    """See the module docstring. kind: one of the constants above."""

    kind: int
    rows: int
    blocks: int
    quants: npt.NDArray[Any]
    subs: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.uint16]

    @cached_property
    def count(self) -> int:
        """Number of panels."""
        return -(-self.rows // ROWS)

    @cached_property
    def bytes(self) -> tuple[npt.NDArray[np.uint8], ...]:
        """The three arrays as plain bytes [panels, n], for kernels that work with addresses."""
        arrays = (self.quants, self.subs, self.scales)
        return tuple(a.reshape(len(a), math.prod(a.shape[1:])).view(np.uint8) for a in arrays)

    @property
    def nbytes(self) -> int:
        """Resident bytes."""
        return self.quants.nbytes + self.subs.nbytes + self.scales.nbytes


def pack(source: WeightSource, launch: Launch, arena: Arena) -> Panels:
    """Repack a matrix. Raises UnsupportedModelError as ``blocks`` does."""
    if source.kind in KINDS:
        return _pack_integers(source, launch, arena)
    return _pack_floats(source, arena)


def _pack_integers(source: WeightSource, launch: Launch, arena: Arena) -> Panels:
    blocks.unpack(source.kind, source.data[:1], source.cols)  # the check of the row size
    kind, n_blocks, count = KINDS[source.kind], source.cols // BLOCK, -(-source.rows // ROWS)
    n_scales = n_blocks // 8 if kind in SUPER_BLOCKS else n_blocks
    quants = arena.zeros((count, n_blocks, QUANT_BYTES[kind]), np.uint8)
    with_subs = (count, n_blocks, 2, ROWS) if kind in SUPER_BLOCKS else (0, 0, 2, ROWS)
    subs = arena.zeros(with_subs, np.uint8)
    parts = 2 if kind in WITH_MINIMUM else 1
    scales = arena.zeros((count, n_scales, parts, ROWS), np.uint16)
    data = np.ascontiguousarray(source.data)
    share = data.nbytes >= SHARED_BYTES
    launch(_fill, count, kind, data, quants, subs, scales, share=share)
    return Panels(kind, source.rows, n_blocks, quants, subs, scales)


def _pack_floats(source: WeightSource, arena: Arena) -> Panels:
    rows, cols = source.rows, source.cols
    kind = FLOAT_KINDS.get(source.kind, F32)
    if kind == F32:
        values = blocks.dequantise(source.kind, source.data, cols)
    else:
        values = np.ascontiguousarray(source.data).view(np.uint16).reshape(rows, cols)
    count, n_blocks = -(-rows // ROWS), -(-cols // BLOCK)
    quants = arena.zeros((count, n_blocks, ROWS, BLOCK), values.dtype)
    padded = np.zeros((ROWS, n_blocks * BLOCK), values.dtype)
    for panel in range(count):
        part = values[panel * ROWS : (panel + 1) * ROWS]
        padded[: len(part), :cols], padded[len(part) :] = part, 0
        by_block = padded.reshape(ROWS, n_blocks, BLOCK)
        if kind == BF16:
            columns = by_block.reshape(ROWS, n_blocks, 2, 2, 8)
            by_block = columns.swapaxes(3, 4).reshape(ROWS, n_blocks, BLOCK)
        quants[panel] = by_block.swapaxes(0, 1)
    none = np.zeros((0, 0, 2, ROWS), np.uint8)
    return Panels(kind, rows, n_blocks, quants, none, np.zeros((0, 0, 1, ROWS), np.uint16))


@device
def _block_words(kind: int, row: int, block: int, out: Any) -> None:
    """The 32 values of a block as eight words of four, from the row at an address."""
    base, j = block // 8, block % 8
    if kind == Q8_0:
        at = row + block * 34 + 2
        for w in range(8):
            out[w] = load_word(at + 4 * w)
    elif kind == Q4_0:
        at = row + block * 18 + 2
        for w in range(4):
            word = load_word(at + 4 * w)
            out[w], out[w + 4] = word & 0x0F0F0F0F, word >> 4 & 0x0F0F0F0F
    elif kind == Q6_K:
        half, j = j // 4, j % 4
        low = row + base * 210 + 64 * half + 32 * (j % 2)
        high = row + base * 210 + 128 + 32 * half
        for w in range(8):
            nibbles = load_word(low + 4 * w) >> (4 * (j // 2)) & 0x0F0F0F0F
            out[w] = nibbles | (load_word(high + 4 * w) >> (2 * j) & 0x03030303) << 4
    elif kind == Q4_K:
        at, shift = row + base * 144 + 16 + 32 * (j // 2), 4 * (j % 2)
        for w in range(8):
            out[w] = load_word(at + 4 * w) >> shift & 0x0F0F0F0F
    else:
        at, shift = row + base * 176 + 48 + 32 * (j // 2), 4 * (j % 2)
        high = row + base * 176 + 16
        for w in range(8):
            nibbles = load_word(at + 4 * w) >> shift & 0x0F0F0F0F
            out[w] = nibbles | (load_word(high + 4 * w) >> j & 0x01010101) << 4


@device
def _place(kind: int, words: Any, r: int, out: int) -> None:
    """Put a block's words where row r has them in the vectors at address ``out``."""
    at = out + 4 * r
    if kind == Q8_0:
        for j in range(8):
            store_word(at + 64 * j, words[j])
        return
    for j in range(4):
        low, high = words[j] & 0x0F0F0F0F, words[j + 4] & 0x0F0F0F0F
        store_word(at + 64 * j, low | high << 4)
    if kind == Q5_K:
        fifth = 0
        for j in range(8):
            fifth |= (words[j] >> 4 & 0x01010101) << j
        store_word(at + 256, fifth)
    elif kind == Q6_K:
        for half in range(2):
            two = 0
            for j in range(4):
                two |= (words[4 * half + j] >> 4 & 0x03030303) << (2 * j)
            store_word(at + 256 + 64 * half, two)


@device
def _sub_scales(kind: int, row: Any, block: int, r: int, out: Any) -> None:
    """The block's two small integers; out [2, 16]."""
    base, j = block // 8, block % 8
    if kind == Q6_K:
        base = base * 210 + 192
        out[0, r], out[1, r] = row[base + 2 * j], row[base + 2 * j + 1]
        return
    base = base * (144 if kind == Q4_K else 176) + 4
    if j < 4:
        out[0, r], out[1, r] = row[base + j] & 63, row[base + 4 + j] & 63
    else:
        both = row[base + 4 + j]
        out[0, r] = (both & 15) | (row[base + j - 4] >> 6 << 4)
        out[1, r] = (both >> 4) | (row[base + j] >> 6 << 4)


@device
def _word(row: Any, at: int) -> Any:
    return np.uint16(row[at]) | np.uint16(row[at + 1]) << 8


_FILE = types.Array(types.uint8, 2, "C", readonly=True)  # a memory map


@kernel(
    types.void(
        types.intp,
        _FILE,
        types.uint8[:, :, ::1],
        types.uint8[:, :, :, ::1],
        types.uint16[:, :, :, ::1],
        types.intp,
        types.intp,
    )
)
def _fill(kind: int, data: Any, quants: Any, subs: Any, scales: Any, first: int, last: int) -> None:
    """Repack the rows of panels first..last of an integer kind."""
    words = np.empty(8, np.int64)
    size = quants.shape[2]
    for index in range(16 * first, min(16 * last, data.shape[0])):
        row, panel, r = data[index], index // 16, index % 16
        at, to = address(row), address(quants[panel])
        for block in range(quants.shape[1]):
            _block_words(kind, at, block, words)
            _place(kind, words, r, to + size * block)
            if subs.shape[0]:
                _sub_scales(kind, row, block, r, subs[panel, block])
        for block in range(scales.shape[1]):
            if kind == Q8_0:
                scales[panel, block, 0, r] = _word(row, block * 34)
            elif kind == Q4_0:
                scales[panel, block, 0, r] = _word(row, block * 18)
            elif kind == Q6_K:
                scales[panel, block, 0, r] = _word(row, block * 210 + 208)
            else:
                base = block * (144 if kind == Q4_K else 176)
                scales[panel, block, 0, r] = _word(row, base)
                scales[panel, block, 1, r] = _word(row, base + 2)
