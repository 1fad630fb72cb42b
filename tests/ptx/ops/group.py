"""Products of a warp group (four warps) on sm_90: bytes in shared memory, described by 64 bits.

PTX ISA, "Asynchronous warpgroup level matrix instructions": register fragments of m64nNk32, the
matrix descriptor, and the canonical layouts of K-major tiles. A product is done at once; waiting
for it changes nothing.
"""

from __future__ import annotations

import re

import numpy as np

from ptx.errors import PtxError, UnsupportedError
from ptx.lanes import WARP, Lanes
from ptx.ops.table import entry
from ptx.ops.tensor import BYTES, exact_product, left_fragment, registers
from ptx.parse import Immediate, Instruction, Operand, Vector
from ptx.scalars import Array

GROUP = 4 * WARP
DEPTH = 32
"""Bytes along K of one instruction."""
_WIDTHS = {0: 16, 3: 32, 2: 64, 1: 128}
"""Bytes of a row in one swizzled tile of 8 rows, by the descriptor's mode."""


@entry("wgmma")
def multiply_in_group(lanes: Lanes, code: Instruction) -> None:
    """D [64, n] = A [64, 32] x B [n, 32] transposed, plus D if the last operand says so."""
    if code.modifiers[0] in ("fence", "commit_group", "wait_group"):
        return
    shape = re.fullmatch(r"m64n(\d+)k32", code.modifiers[3]) if len(code.modifiers) == 7 else None
    types = code.modifiers[4:]
    if shape is None or types[0] != "s32" or not set(types[1:]) <= set(BYTES):
        raise UnsupportedError(f"product {code.text!r}")
    lanes.whole(code, GROUP)
    if lanes.threads % GROUP:
        raise PtxError(f"{lanes.threads} threads are no whole number of warp groups")
    target, a, b, keep = code.operands
    columns = int(shape.group(1))
    if isinstance(a, Vector):
        left = left_fragment(lanes, registers(a), BYTES[types[1]], DEPTH).reshape(-1, 64, DEPTH)
    else:
        left = _tile(lanes, a, 64).view(BYTES[types[1]])
    right = _tile(lanes, b, columns).view(BYTES[types[2]])
    exact = exact_product(left, right.swapaxes(1, 2))
    kept = _kept(lanes, keep)
    lane = np.arange(GROUP)
    row, pair = lane // WARP * 16 + lane % WARP // 4, lane % 4 * 2
    for i, register in enumerate(registers(target)):
        total = exact[:, row + 8 * (i // 2 % 2), 8 * (i // 4) + pair + i % 2].reshape(-1)
        if kept.any():
            total = total + np.where(kept, lanes.read(register, np.int32), 0)
        lanes.write(register, total.astype(np.int32))


def _kept(lanes: Lanes, keep: Operand) -> Array:
    if isinstance(keep, Immediate):
        return np.full(lanes.count, keep.value != 0)
    return lanes.predicate(keep)


def _tile(lanes: Lanes, descriptor: Operand, rows: int) -> Array:
    """uint8 [groups, rows, 32] out of shared memory; zeros for groups that don't take part."""
    groups = _groups(lanes)
    first = slice(None, None, GROUP)
    words = lanes.read(descriptor, np.uint64)[first]
    modes = np.unique(words[groups] >> np.uint64(62))
    if len(modes) != 1 or ((words >> np.uint64(49)) & np.uint64(7))[groups].any():
        raise UnsupportedError("tiles of several layouts, or with an offset of their own")
    width = _WIDTHS[int(modes[0])]
    start, leading, stride = (
        ((words >> np.uint64(shift)) & np.uint64(0x3FFF)).astype(np.int64) * 16
        for shift in (0, 16, 32)
    )
    row, word = np.arange(rows)[:, None], np.arange(0, DEPTH, 4)[None, :]
    eights = (row // 8)[None] * stride[:, None, None]
    if width == 16:
        # no swizzle: core matrices of 8 rows x 16 bytes
        inside = row % 8 * 16 + word % 16
        at = start[:, None, None] + eights + (word // 16)[None] * leading[:, None, None] + inside
    else:
        at = start[:, None, None] + eights + row % 8 * width + word
        at ^= (at >> 7 & width // 16 - 1) << 4
    at = at[groups]
    if at.size and (at.min() < 0 or at.max() + 4 > lanes.shared_size):
        raise PtxError("shared memory: a tile is out of bounds")
    base = lanes.shared_base[first][groups][:, None, None]
    found = np.zeros((lanes.count // GROUP, rows, DEPTH // 4), np.uint32)
    (loaded,) = lanes.shared.load((at + base).reshape(-1), 32)
    found[groups] = loaded.reshape(-1, rows, DEPTH // 4)
    return found.view(np.uint8)


def _groups(lanes: Lanes) -> Array:
    """Which groups take part."""
    if lanes.active is None:
        return np.ones(lanes.count // GROUP, np.bool_)
    return lanes.active[::GROUP]
