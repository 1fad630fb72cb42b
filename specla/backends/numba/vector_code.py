"""LLVM code that the inner loops share: single floats and cache lines by address, splats."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

FIRST_LEVEL, SECOND_LEVEL = 3, 2
"""Caches to prefetch to, as LLVM counts them."""
_BYTE, _I32, _I64, _FLOAT = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.FloatType()
_declare: Any = cgutils.get_or_insert_function  # untyped in Numba


def splat(builder: Any, value: Any, width: int) -> Any:
    """A vector of one value."""
    one = ir.Constant(ir.VectorType(value.type, width), ir.Undefined)
    one = builder.insert_element(one, value, ir.Constant(_I32, 0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, width), [0] * width))


def opaque(builder: Any, value: Any) -> Any:
    """The same integer, about which the compiler knows nothing."""
    kind = ir.FunctionType(value.type, [value.type])
    return builder.asm(kind, "", "=r,0", [value], side_effect=False)


def prefetch_line(builder: Any, address: Any, level: int) -> None:
    """Have a cache line brought to a cache. No address is wrong."""
    pointer = _BYTE.as_pointer()
    kind = ir.FunctionType(ir.VoidType(), [pointer, _I32, _I32, _I32])
    function = _declare(builder.module, kind, "llvm.prefetch.p0")
    read, data = 0, 1
    place = builder.inttoptr(address, pointer)
    builder.call(function, [place, *(ir.Constant(_I32, n) for n in (read, level, data))])


def _address(typing_context: Any, array: Any) -> Any:
    """Where an array's first entry lies."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        return builder.ptrtoint(array.data, _I64)

    return types.int64(array), generate


def _load_float(typing_context: Any, at: Any) -> Any:
    """The float at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load(builder.inttoptr(arguments[0], _FLOAT.as_pointer()), align=4)

    return types.float32(types.int64), generate


def _store_float(typing_context: Any, at: Any, value: Any) -> Any:
    """A float to an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], _FLOAT.as_pointer())
        builder.store(arguments[1], pointer, align=4)
        return context.get_dummy_value()

    return types.void(types.int64, types.float32), generate


def _prefetch_to(level: int) -> Callable[..., Any]:
    def prefetch(typing_context: Any, at: Any) -> Any:
        """Ask for the cache line at an address, which may be any."""

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            prefetch_line(builder, arguments[0], level)
            return context.get_dummy_value()

        return types.void(types.int64), generate

    return prefetch


address: Any = intrinsic(_address)
load_float: Any = intrinsic(_load_float)
store_float: Any = intrinsic(_store_float)
prefetch: Any = intrinsic(_prefetch_to(SECOND_LEVEL))
prefetch_near: Any = intrinsic(_prefetch_to(FIRST_LEVEL))
