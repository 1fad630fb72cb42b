"""Operations on whole rows of floats at addresses, as LLVM vector code.

A row operation is a Python function of :class:`~specla.backends.numba.elementary.Value` objects,
written with ``+ - *`` and the functions of the one source text. ``over_rows`` makes of it something
that kernels call. Left to LLVM such loops come out one vector at a time, and then the processor
waits for each operation of a long chain; here two vectors take turns. Targets may be sources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from specla.backends.numba.elementary import Value, cgutils
from specla.backends.numba.vector_code import splat

WIDE = 16
"""Floats that are worked on at once."""
NARROW = 8
"""Floats at once in what is left of a row."""

_I32, _I64, _FLOAT = ir.IntType(32), ir.IntType(64), ir.FloatType()


def _vector(builder: Any, address: Any, entry: Any, width: int) -> Any:
    """Pointer to ``width`` floats of the row at ``address``, from index ``entry`` on."""
    at = builder.add(address, builder.shl(entry, ir.Constant(_I64, 2)))
    return builder.inttoptr(at, ir.VectorType(_FLOAT, width).as_pointer())


def _first_lanes(builder: Any, count: Any, width: int) -> Any:
    """Mask of a vector's lanes below ``count`` (i64)."""
    kind = ir.VectorType(_I64, width)
    lanes = ir.Constant(kind, list(range(width)))
    return builder.icmp_signed("<", lanes, splat(builder, count, width))


class _Part:
    """Loads and stores of the first ``count`` floats (None: all) of vectors at one index."""

    def __init__(self, builder: Any, entry: Any, width: int, count: Any) -> None:
        self.builder, self.entry, self.width = builder, entry, width
        self.mask = None if count is None else _first_lanes(builder, count, width)

    def load(self, address: Any) -> Any:
        b, pointer = self.builder, _vector(self.builder, address, self.entry, self.width)
        if self.mask is None:
            return b.load(pointer, align=4)
        kind = pointer.type.pointee
        load = self._intrinsic("load", [pointer.type, _I32, self.mask.type, kind], kind)
        zeros = ir.Constant(kind, [0.0] * self.width)
        return b.call(load, [pointer, ir.Constant(_I32, 4), self.mask, zeros])

    def store(self, value: Any, address: Any) -> None:
        b, pointer = self.builder, _vector(self.builder, address, self.entry, self.width)
        if self.mask is None:
            b.store(value, pointer, align=4)
            return
        arguments = [value.type, pointer.type, _I32, self.mask.type]
        store = self._intrinsic("store", arguments, ir.VoidType())
        b.call(store, [value, pointer, ir.Constant(_I32, 4), self.mask])

    def _intrinsic(self, name: str, arguments: list[Any], result: Any) -> Any:
        kind = ir.FunctionType(result, arguments)
        name = f"llvm.masked.{name}.v{self.width}f32.p0"
        return cgutils.get_or_insert_function(self.builder.module, kind, name)


def over_rows(function: Callable[..., Any]) -> Any:
    """``function`` of vectors as a call (count, targets, sources) from a kernel.

    count: entries of each row. targets, sources: tuples of addresses. ``function`` takes one Value
    per source and returns one per target: a tuple, or a Value if there is one target.
    """

    def declare(typing_context: Any, count: Any, targets: Any, sources: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            count = arguments[0]
            to, at = (cgutils.unpack_tuple(builder, rows) for rows in arguments[1:])

            def work(part: _Part) -> None:
                results = function(*(Value(builder, part.load(address)) for address in at))
                results = results if isinstance(results, tuple) else (results,)
                for value, address in zip(results, to, strict=True):
                    part.store(value.value, address)

            whole = builder.and_(count, ir.Constant(_I64, -WIDE))
            zero, wide, narrow = (ir.Constant(_I64, n) for n in (0, WIDE, NARROW))
            with cgutils.for_range_slice(builder, zero, whole, wide, _I64) as (entry, _):
                work(_Part(builder, entry, WIDE, None))
            with cgutils.for_range_slice(builder, whole, count, narrow, _I64) as (entry, _):
                work(_Part(builder, entry, NARROW, builder.sub(count, entry)))
            return context.get_dummy_value()

        return types.void(types.int64, targets, sources), generate

    return intrinsic(declare)
