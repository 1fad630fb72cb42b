"""What Numba's Python lacks: bit casts, float16 on a CPU, rows known to be contiguous."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.imputils import impl_ret_borrowed
from numba.extending import intrinsic

from specla.backends.numba.features import has

I16, I32 = ir.IntType(16), ir.IntType(32)
F32 = ir.FloatType()
_borrowed: Any = impl_ret_borrowed


def _bits(typing_context: Any, x: Any) -> Any:
    """float32 -> int32, same bits."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.bitcast(arguments[0], I32)

    return types.int32(types.float32), generate


def _from_bits(typing_context: Any, x: Any) -> Any:
    """The low 32 bits of an integer as a float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        value = arguments[0]
        if value.type.width > 32:
            value = builder.trunc(value, I32)
        return builder.bitcast(value, F32)

    return types.float32(x), generate


def _contiguous(typing_context: Any, array: Any) -> Any:
    """The same 1-D array with the promise, kept by the protocol, that its stride is one item."""
    result = array.copy(layout="C")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return _borrowed(context, builder, result, arguments[0])

    return result(array), generate


def _load_word(typing_context: Any, address: Any) -> Any:
    """Four bytes at any address, little endian, as a number 0 .. 2^32 - 1."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I32.as_pointer())
        return builder.zext(builder.load(pointer, align=1), ir.IntType(64))

    return types.int64(types.int64), generate


def _store_word(typing_context: Any, address: Any, word: Any) -> Any:
    """The low four bytes of a number to any address, little endian."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.inttoptr(arguments[0], I32.as_pointer())
        builder.store(builder.trunc(arguments[1], I32), pointer, align=1)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def widen_half(builder: Any, half: Any) -> Any:
    """Code for float16 bits (i16, scalar or vector) to float32; exact, subnormals included."""
    vector = isinstance(half.type, ir.VectorType)

    def of(element: Any) -> Any:
        return ir.VectorType(element, half.type.count) if vector else element

    def constant(element: Any, value: Any) -> Any:
        return ir.Constant(of(element), [value] * half.type.count if vector else value)

    if has("f16c") or has("avx512f"):
        return builder.fpext(builder.bitcast(half, of(ir.HalfType())), of(F32))
    wide = builder.zext(half, of(I32))
    magnitude = builder.shl(builder.and_(wide, constant(I32, 0x7FFF)), constant(I32, 13))
    sign = builder.shl(builder.and_(wide, constant(I32, 0x8000)), constant(I32, 16))
    # the exponent is off by 112 in float32's terms; the product is exact
    scaled = builder.fmul(builder.bitcast(magnitude, of(F32)), constant(F32, 2.0**112))
    special = builder.icmp_unsigned(">=", magnitude, constant(I32, 0x7C00 << 13))
    bits = builder.select(
        special,
        builder.or_(magnitude, constant(I32, 0x7F800000)),
        builder.bitcast(scaled, of(I32)),
    )
    return builder.bitcast(builder.or_(bits, sign), of(F32))


def narrow_half(builder: Any, x: Any) -> Any:
    """Code for float32 (scalar or vector) to float16 bits, ties to even, overflow to infinity."""
    vector = isinstance(x.type, ir.VectorType)

    def of(element: Any) -> Any:
        return ir.VectorType(element, x.type.count) if vector else element

    if has("f16c") or has("avx512f"):
        return builder.bitcast(builder.fptrunc(x, of(ir.HalfType())), of(I16))

    def constant(value: int) -> Any:
        return ir.Constant(of(I32), [value] * x.type.count if vector else value)

    word = builder.bitcast(x, of(I32))
    size = builder.and_(word, constant(0x7FFFFFFF))
    odd = builder.and_(builder.lshr(size, constant(13)), constant(1))
    half_less = builder.add(builder.add(size, odd), constant(0xFFF - (112 << 23)))
    result = builder.lshr(half_less, constant(13))
    # subnormal: adding 0.5 rounds at the right place
    half = constant(126 << 23)
    sum_ = builder.fadd(builder.bitcast(size, of(F32)), builder.bitcast(half, of(F32)))
    tiny = builder.sub(builder.bitcast(sum_, of(I32)), half)

    def choose(least: int, other: Any, result: Any) -> Any:
        return builder.select(builder.icmp_signed(">=", size, constant(least)), other, result)

    result = choose(0x38800000, result, tiny)
    # from 65520 on, half way to what would be the next float16
    result = choose(0x477FF000, constant(0x7C00), result)
    result = choose(0x7F800001, constant(0x7E00), result)
    sign = builder.and_(builder.lshr(word, constant(16)), constant(0x8000))
    return builder.trunc(builder.or_(result, sign), of(I16))


def _narrow(typing_context: Any, x: Any) -> Any:
    """float32 to float16 bits (uint16)."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return narrow_half(builder, arguments[0])

    return types.uint16(types.float32), generate


def _widen(typing_context: Any, x: Any) -> Any:
    """float16 bits (uint16) or a float32 as float32."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        if signature.args[0] == types.uint16:
            return widen_half(builder, arguments[0])
        return arguments[0]

    return types.float32(x), generate


def _keep(typing_context: Any, array: Any) -> Any:
    """Nothing. An array whose address is in use must live until here: Numba frees one after its
    last mention."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.void(array), generate


bits: Any = intrinsic(_bits)
from_bits: Any = intrinsic(_from_bits)
load_word: Any = intrinsic(_load_word)
store_word: Any = intrinsic(_store_word)
keep: Any = intrinsic(_keep)
contiguous: Any = intrinsic(_contiguous)
widen: Any = intrinsic(_widen)
narrow: Any = intrinsic(_narrow)
