"""Matrix instructions of a warp: tiles in shared memory, and integer products.

Layouts of fragments: PTX ISA, "Matrix fragments for mma.m16n8k32" and "ldmatrix". A warp takes part
as a whole or not at all; the other warps of a block may be elsewhere.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ptx.errors import UnsupportedError
from ptx.lanes import WARP, Lanes
from ptx.memory import Memory
from ptx.ops.table import entry
from ptx.parse import Instruction, Operand, Vector
from ptx.scalars import Array

_ROW, _PAIR = np.arange(WARP) // 4, np.arange(WARP) % 4
"""Of a lane: the row of an 8 x 8 tile whose words it holds, and which two of its columns."""


def registers(operand: Operand) -> tuple[Operand, ...]:
    if not isinstance(operand, Vector):
        raise UnsupportedError(f"fragment {operand}")
    return operand.parts


def _tiles(lanes: Lanes, code: Instruction, place: Operand, count: int) -> tuple[Memory, Array]:
    """Addresses [active warps, tile, 8 rows]: tile i's come from lanes 8 i to 8 i + 7."""
    if not {"aligned", "m8n8", "b16"} <= set(code.modifiers):
        raise UnsupportedError(f"{code.text!r} of this form")
    lanes.whole(code, WARP)
    shared, at = lanes.addresses(place, "shared")
    return shared, at.reshape(-1, 4, 8)[:, :count]


@entry("ldmatrix", ("b16",))
def load_matrix(lanes: Lanes, code: Instruction) -> None:
    """Tiles of 8 x 8 16-bit values; with .trans each is transposed on the way."""
    targets = registers(code.operands[0])
    shared, rows = _tiles(lanes, code, code.operands[1], len(targets))
    words = shared.load(rows.reshape(-1), 32, 4)
    tiles = np.stack(words, axis=1).view(np.uint16).reshape(-1, len(targets), 8, 8)
    if "trans" in code.modifiers:
        tiles = tiles.swapaxes(2, 3)
    pairs = np.ascontiguousarray(tiles).view(np.uint32)
    for i, register in enumerate(targets):
        lanes.write(register, lanes.spread(pairs[:, i, _ROW, _PAIR].reshape(-1)))


@entry("stmatrix", ("b16",))
def store_matrix(lanes: Lanes, code: Instruction) -> None:
    sources = registers(code.operands[1])
    shared, rows = _tiles(lanes, code, code.operands[0], len(sources))
    for i, register in enumerate(sources):
        pairs = lanes.only_active(lanes.read(register, np.uint32)).reshape(-1, 8, 4)
        tile = np.ascontiguousarray(pairs).view(np.uint16)
        if "trans" in code.modifiers:
            tile = np.ascontiguousarray(tile.swapaxes(1, 2))
        words = tile.view(np.uint32).reshape(-1, 4)
        shared.store(rows[:, i].reshape(-1), [words[:, word] for word in range(4)])


BYTES: dict[str, Any] = {"s8": np.int8, "u8": np.uint8}
_DEPTH = {"m16n8k16": 16, "m16n8k32": 32}


def exact_product(left: Array, right: Array) -> Array:
    """Matrices of bytes: 32 products sum below 2 ** 24, so float32 holds every partial sum."""
    product: Array = left.astype(np.float32) @ right.astype(np.float32)
    return product.astype(np.int64)


@entry("mma", ("s32",))
def multiply_matrices(lanes: Lanes, code: Instruction) -> None:
    """[16, k] x [k, 8] of 8-bit integers added to int32: exact, clamped with .satfinite."""
    flags = [m for m in code.modifiers if m not in ("sync", "aligned", "row", "col")]
    clamp = "satfinite" in flags
    shape, *types = [m for m in flags if m != "satfinite"]
    if shape not in _DEPTH or types[0] != "s32" or not set(types[1:3]) <= set(BYTES):
        raise UnsupportedError(f"product {code.text!r}")
    lanes.whole(code, WARP)
    target, *sources = code.operands
    depth = _DEPTH[shape]
    left = left_fragment(lanes, registers(sources[0]), BYTES[types[1]], depth)
    right = _right(lanes, registers(sources[1]), BYTES[types[2]], depth)
    exact = exact_product(left, right)
    for i, (register, addend) in enumerate(
        zip(registers(target), registers(sources[2]), strict=True)
    ):
        part = exact[:, _ROW + 8 * (i // 2), 2 * _PAIR + i % 2].reshape(-1)
        total = part + lanes.read(addend, np.int32)
        if clamp:
            total = np.clip(total, np.iinfo(np.int32).min, np.iinfo(np.int32).max)
        lanes.write(register, total.astype(np.int32))


def _bytes(lanes: Lanes, register: Operand, dtype: Any) -> Array:
    """The four bytes of each lane: [warps, lane, 4]."""
    return lanes.read(register, np.uint32).view(dtype).reshape(-1, WARP, 4)


def left_fragment(lanes: Lanes, registers: tuple[Operand, ...], dtype: Any, depth: int) -> Array:
    """[warps, 16, depth]: registers go down the rows first, then along them."""
    matrix = np.empty((lanes.count // WARP, 16, depth), dtype)
    for i, register in enumerate(registers):
        row = (_ROW + 8 * (i % 2))[:, None]
        column = 16 * (i // 2) + 4 * _PAIR[:, None] + np.arange(4)
        matrix[:, row, column] = _bytes(lanes, register, dtype)
    return matrix


def _right(lanes: Lanes, registers: tuple[Operand, ...], dtype: Any, depth: int) -> Array:
    """[warps, depth, 8]."""
    matrix = np.empty((lanes.count // WARP, depth, 8), dtype)
    for i, register in enumerate(registers):
        row = 16 * i + 4 * _PAIR[:, None] + np.arange(4)
        matrix[:, row, _ROW[:, None]] = _bytes(lanes, register, dtype)
    return matrix
