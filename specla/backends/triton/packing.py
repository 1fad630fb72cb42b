"""Quantised matrices as the product kernels read them: repacked once, on the host, while loading.

Blocks of 32 columns come first, then rows: what a program reads at a time lies together. Nothing is
rounded or widened; a matrix takes what it takes in the file, and a little more where the K-quants
pack their sub-scales (12 bytes of a super-block become 16).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends import blocks
from specla.backends.weights import WeightSource

BLOCK = 32


@dataclass(frozen=True)
class Layout:
    """How a kind's integers are made: quant = (low | high << 4) - offset, times a sub-scale.

    bits: 8, 4, 5 or 6.  subs: integer sub-scales of a block: 0, 1, or 2 (of 16 columns each).
    minima: whether a block has a minimum.  run: blocks that share a float16 scale.
    """

    bits: int
    offset: int
    subs: int
    minima: bool
    run: int


LAYOUTS = {
    "Q8_0": Layout(bits=8, offset=0, subs=0, minima=False, run=1),
    "Q4_0": Layout(bits=4, offset=8, subs=0, minima=False, run=1),
    "Q4_K": Layout(bits=4, offset=0, subs=1, minima=True, run=8),
    "Q5_K": Layout(bits=5, offset=0, subs=1, minima=True, run=8),
    "Q6_K": Layout(bits=6, offset=32, subs=2, minima=False, run=8),
}


@dataclass(frozen=True)
class Packed:
    """B blocks, M rows.

    low: int8 [B, M, 32], or two quants a byte, int8 [B, M, 16], the even column in the low half
    high: int32 [B, M, 1] (bit i: column i) or [B, M, 2] (two bits a column, 16 columns each)
    subs: int8 [B, M, 1 or 2].  minimum: int8 [B, M]
    scale, minimum_scale: float16 [ceil(B / run), M]
    What a kind doesn't have is an array of one zero.
    """

    low: Any
    high: Any
    subs: Any
    minimum: Any
    scale: Any
    minimum_scale: Any


def pack(source: WeightSource) -> Packed:
    """Repack a matrix of a native kind."""
    layout = LAYOUTS[source.kind]
    found = blocks.parts(source.kind, source.data, source.cols)
    raw: npt.NDArray[np.uint8] = (found.quants + layout.offset).astype(np.uint8)
    packed = Packed(
        low=raw if layout.bits == 8 else (raw[..., 0::2] & 15) | (raw[..., 1::2] << 4),
        high=_high(raw >> np.uint8(4), layout.bits) if layout.bits in (5, 6) else None,
        subs=found.sub_scale,
        minimum=found.min_value,
        scale=found.scale,
        minimum_scale=found.min_scale,
    )
    return Packed(
        **{f.name: _blocks_first(f.name, getattr(packed, f.name)) for f in fields(Packed)}
    )


def _blocks_first(name: str, by_row: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """[M, B, ...] to [B, M, ...], integers as int8 or int32."""
    if by_row is None:
        kind = "float16" if "scale" in name else "int32" if name == "high" else "int8"
        return np.zeros(1, kind)
    array = np.ascontiguousarray(np.moveaxis(by_row, 1, 0))
    if array.dtype == np.uint8:
        return array.view(np.int8)
    return array.astype(np.int8) if array.dtype == np.int16 else array


def _high(bits: npt.NDArray[np.uint8], width: int) -> npt.NDArray[np.int32]:
    """Columns' high bits [M, B, 32] in words: one of 32 bits, or two of 16 pairs of bits."""
    each = width - 4
    words = bits.reshape(*bits.shape[:2], each, BLOCK // each).astype(np.uint32)
    shifts = np.arange(BLOCK // each, dtype=np.uint32) * np.uint32(each)
    packed: npt.NDArray[np.int32] = (words << shifts).sum(axis=-1, dtype=np.uint32).view(np.int32)
    return packed
