"""Operations on rows of a tile, as LLVM vector code.

A tile is [rows, TILE] floats, and all its columns are worked on alike. Written with LLVM's builder
because these are inner loops: left to the vectoriser they take longer to compile and come out
slower.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from specla.backends.numba.vector_code import splat

TILE = 32
"""Columns of a tile."""
ROW_BYTES = 4 * TILE

SUM, WEIGH, WEIGH_PADDED, DECAY, UPDATE, SQUARE = range(6)

_FLOAT = ir.FloatType()
_LANES = ir.VectorType(_FLOAT, 16)
_I32, _I64 = ir.IntType(32), ir.IntType(64)


class _Branch:
    """Writes the tree over a few rows, 16 columns at a time, depth first to save registers."""

    def __init__(self, builder: Any, action: int, arguments: list[Any]) -> None:
        self.builder, self.action = builder, action
        self.to, self.at, self.step, self.weight, self.weight_step = arguments[:5]
        self.decay, self.key, self.delta = arguments[5:]

    def write(self, rows: int) -> None:
        for self.column in range(0, TILE, 16):
            total = self._tree(0, 1, rows)
            if self.action == WEIGH_PADDED:
                total = self.builder.fadd(total, ir.Constant(_LANES, [0.0] * 16))
            self.builder.store(total, self._lanes(self.to), align=4)

    def _tree(self, first: int, stride: int, rows: int) -> Any:
        if stride == rows:
            return self._leaf(first)
        lower = self._tree(first, 2 * stride, rows)
        return self.builder.fadd(lower, self._tree(first + stride, 2 * stride, rows))

    def _leaf(self, j: int) -> Any:
        b = self.builder
        pointer = self._lanes(self._offset(self.at, j, self.step))
        row = b.load(pointer, align=4)
        if self.action == SUM:
            return row
        if self.action == SQUARE:
            return b.fmul(row, row)
        if self.action == DECAY:
            row = b.fmul(row, splat(b, self.decay, 16))
            b.store(row, pointer, align=4)
        elif self.action == UPDATE:
            key = self._scalar(self._offset(self.key, j, self.weight_step))
            row = b.fadd(row, b.fmul(key, b.load(self._lanes(self.delta), align=4)))
            b.store(row, pointer, align=4)
        return b.fmul(row, self._scalar(self._offset(self.weight, j, self.weight_step)))

    def _offset(self, base: Any, j: int, step: Any) -> Any:
        return self.builder.add(base, self.builder.mul(step, ir.Constant(_I64, j)))

    def _lanes(self, address: Any) -> Any:
        at = self.builder.add(address, ir.Constant(_I64, 4 * self.column))
        return self.builder.inttoptr(at, _LANES.as_pointer())

    def _scalar(self, address: Any) -> Any:
        b = self.builder
        return splat(b, b.load(b.inttoptr(address, _FLOAT.as_pointer()), align=4), 16)


def _branch(
    typing_context: Any,
    rows: Any,
    action: Any,
    to: Any,
    at: Any,
    step: Any,
    weight: Any,
    weight_step: Any,
    decay: Any,
    key: Any,
    delta: Any,
) -> Any:
    """Row ``to`` = halving tree of ``rows`` (a literal power of two) rows at, at + step, ...

    All but rows, action (literals) and decay (float32) are addresses and steps in bytes. SUM: the
    rows as they are. SQUARE: their squares. WEIGH: row j times the float at weight + j *
    weight_step. WEIGH_PADDED: the same plus +0.0. DECAY: each row is first multiplied by decay, in
    place. UPDATE: each row j first gets key[j] * delta added, in place; key as weight, delta a row.
    """
    address = types.int64
    signature = types.void(rows, action, *[address] * 5, types.float32, address, address)
    count, what = rows.literal_value, action.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _Branch(builder, what, list(arguments[2:])).write(count)
        return context.get_dummy_value()

    return signature, generate


def _clear_row(typing_context: Any, at: Any) -> Any:
    """row = +0.0."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = ir.VectorType(_FLOAT, TILE)
        pointer = builder.inttoptr(arguments[0], row.as_pointer())
        builder.store(ir.Constant(row, [0.0] * TILE), pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.int64), generate


def _copy_row(typing_context: Any, to: Any, at: Any) -> Any:
    """Row ``to`` = row ``at``."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        row = ir.VectorType(_FLOAT, TILE)
        to, at = (builder.inttoptr(a, row.as_pointer()) for a in arguments)
        builder.store(builder.load(at, align=4), to, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _halving(builder: Any, vectors: int, leaf: Any) -> Any:
    """Halving tree over ``vectors`` times 16 floats, the j-th 16 of which are leaf(j).

    Whole vectors first, then the lanes of the last one, which is the order of the tree.
    """

    def tree(first: int, step: int) -> Any:
        if step == vectors:
            return leaf(first)
        return builder.fadd(tree(first, 2 * step), tree(first + step, 2 * step))

    total, width = tree(0, 1), 16
    while width > 1:
        width //= 2
        low, high = (
            builder.shuffle_vector(
                total,
                total,
                ir.Constant(ir.VectorType(_I32, width), [start + i for i in range(width)]),
            )
            for start in (0, width)
        )
        total = builder.fadd(low, high)
    return builder.extract_element(total, ir.Constant(_I32, 0))


def _sixteen(builder: Any, base: Any, j: int) -> Any:
    at = builder.add(base, ir.Constant(_I64, 64 * j))
    return builder.load(builder.inttoptr(at, _LANES.as_pointer()), align=4)


def _row_dot(typing_context: Any, size: Any, x: Any, y: Any) -> Any:
    """Halving tree over the products of ``size`` floats at two addresses.

    size: a literal power of two >= 16.
    """
    signature = types.float32(size, types.int64, types.int64)
    vectors = size.literal_value // 16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        def product(j: int) -> Any:
            return builder.fmul(*(_sixteen(builder, at, j) for at in arguments[1:]))

        return _halving(builder, vectors, product)

    return signature, generate


def _row_sum(typing_context: Any, size: Any, x: Any) -> Any:
    """Halving tree over ``size`` floats at an address; size as for row_dot."""
    signature = types.float32(size, types.int64)
    vectors = size.literal_value // 16

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _halving(builder, vectors, lambda j: _sixteen(builder, arguments[1], j))

    return signature, generate


branch: Any = intrinsic(prefer_literal=True)(_branch)
clear_row: Any = intrinsic(_clear_row)
copy_row: Any = intrinsic(_copy_row)
row_dot: Any = intrinsic(prefer_literal=True)(_row_dot)
row_sum: Any = intrinsic(prefer_literal=True)(_row_sum)
