"""Integer dots of 16 rows at once, as LLVM code, by several instructions.

    acc[r] += sum over c < 4 of w[4 r + c] * x[c]      w: bytes, x: int8, acc: int32

All methods are exact, so they agree:

* ``vnni``, ``vnni256``: one byte dot instruction (vpdpbusd), 512 or 256 bits wide; w unsigned.
* ``bytes``: pmaddubsw into int16 sums, which are widened before they can overflow; AVX2, for
  unsigned weights of at most six bits.
* ``pairs_avx2``, ``pairs``: signed bytes 0, 2 and then 1, 3 of each four as pairs of int16
  (pmaddwd, or plain LLVM code for any processor), against activations that are int16 in that
  order. Both operands of w keep their bytes in the upper half, so that one instruction makes
  each: the sums are 256 times too large.
"""

from __future__ import annotations

from typing import Any

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils

from specla.backends.numba.vector_code import splat

I8, I16, I32 = ir.IntType(8), ir.IntType(16), ir.IntType(32)
BYTES = ir.VectorType(I8, 64)
PAIRS = ir.VectorType(I16, 32)
INTS = ir.VectorType(I32, 16)
PAIR_SHIFT = 8
_declare: Any = cgutils.get_or_insert_function


def method(level: str, largest: int) -> str:
    """How to multiply at a CPU level, for weights 0..largest."""
    if level == "avx2":
        return "bytes" if quads_per_sum(largest) else "pairs_avx2"
    return "pairs" if level == "portable" else level


def takes_pairs(how: str) -> bool:
    """Whether a method multiplies int16 activations."""
    return how in ("pairs", "pairs_avx2")


def quads_per_sum(largest: int) -> int:
    """How many sums of two products w * x, |x| <= 127, an int16 holds."""
    return 32767 // (2 * 127 * largest)


def byte_dot(builder: Any, how: str, acc: Any, w: Any, word: Any) -> Any:
    """Methods ``vnni`` and ``vnni256``: acc plus the dot with a word of four int8."""
    # LLVM 22 declares the operands as bytes, earlier ones as words
    operand = BYTES if llvmlite.binding.llvm_version_info[0] >= 22 else INTS
    operands = [
        acc,
        builder.bitcast(w, operand),
        builder.bitcast(splat(builder, word, 16), operand),
    ]
    if how == "vnni256":
        return _in_halves(builder, "llvm.x86.avx512.vpdpbusd.256", INTS, operands)
    function = _declare(
        builder.module,
        ir.FunctionType(INTS, [value.type for value in operands]),
        "llvm.x86.avx512.vpdpbusd.512",
    )
    return builder.call(function, operands)


def pair_operands(builder: Any, w: Any) -> tuple[Any, Any]:
    """Methods ``pairs``: what the two words of int16 pairs are multiplied with."""
    pairs = builder.bitcast(w, PAIRS)
    even = builder.shl(pairs, ir.Constant(PAIRS, [8] * 32))
    odd = builder.and_(pairs, ir.Constant(PAIRS, [0xFF00] * 32))
    return even, odd


def pair_dot(builder: Any, how: str, pairs: Any, word: Any) -> Any:
    """Sums of both products of each int16 pair with the pair in a word, by any method."""
    x = builder.bitcast(splat(builder, word, 16), PAIRS)
    product = _pmaddwd if how in ("bytes", "pairs_avx2") else _pair_products
    return product(builder, pairs, x)


def short_dot(builder: Any, w: Any, word: Any) -> Any:
    """Method ``bytes``: int16 sums of two products each; the caller adds and then widens them."""
    x = builder.bitcast(splat(builder, word, 16), BYTES)
    return _in_halves(builder, "llvm.x86.avx2.pmadd.ub.sw", PAIRS, [w, x])


def widen(builder: Any, sums: Any, factors: Any) -> Any:
    """Method ``bytes``: int32 sums of both int16 sums of each lane times int16 factors."""
    return _pmaddwd(builder, sums, factors)


def _pmaddwd(builder: Any, w: Any, x: Any) -> Any:
    return _in_halves(builder, "llvm.x86.avx2.pmadd.wd", INTS, [w, x])


def _pair_products(builder: Any, w: Any, x: Any) -> Any:
    """pmaddwd in plain LLVM code."""
    wide = ir.VectorType(I32, 32)
    product = builder.mul(builder.sext(w, wide), builder.sext(x, wide))
    even = builder.shuffle_vector(product, product, lanes(16, 0, 2))
    odd = builder.shuffle_vector(product, product, lanes(16, 1, 2))
    return builder.add(even, odd)


def _in_halves(builder: Any, name: str, result: Any, operands: list[Any]) -> Any:
    """A 256-bit instruction applied to both halves of 512-bit operands."""

    def half(vector: Any) -> Any:
        return ir.VectorType(vector.element, vector.count // 2)

    function = _declare(
        builder.module,
        ir.FunctionType(half(result), [half(value.type) for value in operands]),
        name,
    )
    parts = []
    for part in (0, 1):
        cut = [
            builder.shuffle_vector(v, v, lanes(v.type.count // 2, part * (v.type.count // 2), 1))
            for v in operands
        ]
        parts.append(builder.call(function, cut))
    return builder.shuffle_vector(parts[0], parts[1], lanes(result.count, 0, 1))


def lanes(count: int, start: int, step: int) -> Any:
    """Shuffle indices start, start + step, ..."""
    return ir.Constant(ir.VectorType(I32, count), [start + step * i for i in range(count)])
