"""The inner loops of attention as LLVM vector code; all arguments are addresses and byte steps.

Work is cut into tiles of four sums, which take each operand from memory once for several of them,
and each sum into trees over 8 products whose results (partial sums, in groups of four vectors) go
through a small buffer. No order of addition is free: the trees are those of docs/arithmetic.md.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from specla.backends.numba.primitives import widen_half
from specla.backends.numba.vector_code import splat

LANES = 8
VECTOR_BYTES = 4 * LANES
LEAVES = 8
"""Products of one tree that is held in registers."""
GROUP_BYTES = 4 * VECTOR_BYTES
"""A group of partial sums: four vectors, row after row of the tile."""
_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_INT = types.int64


def _at(builder: Any, address: Any, offset: int = 0) -> Any:
    return builder.add(address, ir.Constant(_I64, offset)) if offset else address


def _pointer(builder: Any, address: Any, kind: Any, offset: int = 0) -> Any:
    return builder.inttoptr(_at(builder, address, offset), kind.as_pointer())


def load_floats(builder: Any, address: Any, lanes: int = LANES, offset: int = 0) -> Any:
    kind = ir.VectorType(_FLOAT, lanes)
    return builder.load(_pointer(builder, address, kind, offset), align=4)


def store_floats(builder: Any, value: Any, address: Any, offset: int = 0) -> None:
    builder.store(value, _pointer(builder, address, value.type, offset), align=4)


def shuffle(builder: Any, one: Any, two: Any, lanes: list[int]) -> Any:
    return builder.shuffle_vector(one, two, ir.Constant(ir.VectorType(_I32, len(lanes)), lanes))


class _Tile:
    """Writes the four trees of a tile side by side, depth first to save registers.

    rows, columns: functions that load operand j of each row and column of the tile.
    """

    def __init__(self, builder: Any, rows: list[Any], columns: list[Any], masks: list[Any]) -> None:
        self.builder, self.rows, self.columns, self.masks = builder, rows, columns, masks

    def store(self, to: Any) -> None:
        for i, tree in enumerate(self._trees(0, 1)):
            store_floats(self.builder, tree, to, VECTOR_BYTES * i)

    def _trees(self, first: int, stride: int) -> list[Any]:
        if stride == LEAVES:
            return self._products(first)
        lower, upper = self._trees(first, 2 * stride), self._trees(first + stride, 2 * stride)
        return [self.builder.fadd(x, y) for x, y in zip(lower, upper, strict=True)]

    def _products(self, j: int) -> list[Any]:
        b = self.builder
        columns, products = [load(j) for load in self.columns], []
        for i, load in enumerate(self.rows):
            row = load(j)
            several = [b.fmul(row, column) for column in columns]
            if self.masks:
                mask = self.masks[i](j)
                several = [b.and_(b.bitcast(x, mask.type), mask) for x in several]
                several = [b.bitcast(x, row.type) for x in several]
            products += several
        return products


def _vectors(builder: Any, address: Any, step: Any, size: int = 4) -> Any:
    """Loader of vector j at address + j * step; size 2: of float16 bits."""

    def load(j: int) -> Any:
        at = builder.add(address, builder.mul(step, ir.Constant(_I64, j)))
        if size == 4:
            return load_floats(builder, at)
        kind = ir.VectorType(ir.IntType(16), LANES)
        return widen_half(builder, builder.load(_pointer(builder, at, kind), align=2))

    return load


def _singles(builder: Any, address: Any, kind: Any) -> Any:
    """Loader of entry j * LEAVES, for all lanes, of a row of 4-byte entries."""

    def load(j: int) -> Any:
        pointer = _pointer(builder, address, kind, 4 * LEAVES * j)
        return splat(builder, builder.load(pointer, align=4), LANES)

    return load


def _dots(
    typing_context: Any,
    cache: Any,
    to: Any,
    a0: Any,
    a1: Any,
    a2: Any,
    a3: Any,
    b: Any,
    step: Any,
) -> Any:
    """Group ``to`` = trees over the products of LEAVES vectors of four rows and one cache entry.

    Vector j of the rows at a + j * step, of the entry at b, scaled to its type (that of cache).
    """
    size = 2 if cache.dtype == types.uint16 else 4

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, *rows, entry, step = arguments[1:]
        entry_step = builder.lshr(step, ir.Constant(_I64, 1)) if size == 2 else step
        loads = [_vectors(builder, row, step) for row in rows]
        _Tile(builder, loads, [_vectors(builder, entry, entry_step, size)], []).store(to)
        return context.get_dummy_value()

    return types.void(cache, *[_INT] * 7), generate


def _weigh(
    typing_context: Any, to: Any, p0: Any, p1: Any, v: Any, step: Any, mask0: Any, mask1: Any
) -> Any:
    """Group ``to`` = trees over products p[j * LEAVES] * (the vectors at v + j * step and beside).

    mask0, mask1: literal 0, or rows of int32, -1 for products that count, 0 for +0.0 instead.
    """
    masked = not isinstance(mask0, types.IntegerLiteral)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, p0, p1, v, step = arguments[:5]
        rows = [_singles(builder, p, _FLOAT) for p in (p0, p1)]
        columns = [_vectors(builder, _at(builder, v, o), step) for o in (0, VECTOR_BYTES)]
        masks = [_singles(builder, mask, _I32) for mask in arguments[5:]] if masked else []
        _Tile(builder, rows, columns, masks).store(to)
        return context.get_dummy_value()

    return types.void(*[_INT] * 5, mask0, mask1), generate


def _combine(
    typing_context: Any,
    count: Any,
    more: Any,
    at: Any,
    step: Any,
    to0: Any,
    to1: Any,
    to2: Any,
    to3: Any,
) -> Any:
    """Vectors ``to`` = trees over ``count`` (literal) groups at, at + step, ...

    more: literal; 1 adds the tree to the vector that is there, 0 replaces that.
    """
    groups, adding = count.literal_value, more.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, step = arguments[2:4]

        def tree(i: int, first: int, stride: int) -> Any:
            if stride == groups:
                group = builder.add(at, builder.mul(step, ir.Constant(_I64, first)))
                return load_floats(builder, group, offset=VECTOR_BYTES * i)
            lower = tree(i, first, 2 * stride)
            return builder.fadd(lower, tree(i, first + stride, 2 * stride))

        for i, to in enumerate(arguments[4:]):
            value = tree(i, 0, 1)
            if adding:
                value = builder.fadd(load_floats(builder, to), value)
            store_floats(builder, value, to)
        return context.get_dummy_value()

    return types.void(count, more, *[_INT] * 6), generate


def _fold(typing_context: Any, to: Any, at: Any, scale: Any) -> Any:
    """Eight floats ``to`` = (tree over the lanes of each of eight vectors ``at``) * scale."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to, at, scale = arguments

        def add(one: Any, two: Any, low: list[int], high: list[int]) -> Any:
            """Add upper to lower halves; lanes as shuffle counts them."""
            return builder.fadd(shuffle(builder, one, two, low), shuffle(builder, one, two, high))

        v = [load_floats(builder, at, offset=VECTOR_BYTES * i) for i in range(8)]
        # lanes 0..3 belong to vector i and 4..7 to vector i + 4
        v = [
            add(v[i], v[i + 4], [0, 1, 2, 3, 8, 9, 10, 11], [4, 5, 6, 7, 12, 13, 14, 15])
            for i in range(4)
        ]
        v = [
            add(v[i], v[i + 1], [0, 1, 8, 9, 4, 5, 12, 13], [2, 3, 10, 11, 6, 7, 14, 15])
            for i in (0, 2)
        ]
        total = add(v[0], v[1], [0, 2, 8, 10, 4, 6, 12, 14], [1, 3, 9, 11, 5, 7, 13, 15])
        store_floats(builder, builder.fmul(total, splat(builder, scale, LANES)), to)
        return context.get_dummy_value()

    return types.void(_INT, _INT, types.float32), generate


def _widen_line(typing_context: Any, cache: Any, to: Any, at: Any) -> Any:
    """32 floats ``to`` = the entries ``at``: float16 bits or floats, the type of cache."""
    size = 2 if cache.dtype == types.uint16 else 4

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        _, to, at = arguments
        load = _vectors(builder, at, ir.Constant(_I64, size * LANES), size)
        for j in range(4):
            store_floats(builder, load(j), to, VECTOR_BYTES * j)
        return context.get_dummy_value()

    return types.void(cache, _INT, _INT), generate


dots: Any = intrinsic(_dots)
weigh: Any = intrinsic(prefer_literal=True)(_weigh)
combine: Any = intrinsic(prefer_literal=True)(_combine)
fold: Any = intrinsic(_fold)
widen_line: Any = intrinsic(_widen_line)
