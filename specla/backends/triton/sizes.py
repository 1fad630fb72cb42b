"""What a matrix takes on the device, without loading it. Imports no torch."""

from __future__ import annotations

from specla.backends.triton.packing import BLOCK, LAYOUTS
from specla.backends.weights import WeightSource

_FLOATS = {"F16": 2, "BF16": 2}
"""Bytes of a float that stays as it is; others are kept in four."""


def kept_bytes(source: WeightSource) -> int:
    """Bytes of a matrix as this backend holds it (packing.py; floats as they are)."""
    layout = LAYOUTS.get(source.kind)
    if layout is None:
        return source.rows * source.cols * _FLOATS.get(source.kind, 4)
    blocks = source.cols // BLOCK
    runs = -(-blocks // layout.run)
    # the low bits, then the others in words of 32
    quants = BLOCK if layout.bits == 8 else BLOCK // 2 + BLOCK * (layout.bits - 4) // 8
    per_block = quants + layout.subs + layout.minima
    return source.rows * (blocks * per_block + runs * 2 * (1 + layout.minima))
