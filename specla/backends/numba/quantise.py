"""Activations in int8 blocks of 32."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from specla.backends.base import QuantisedRows
from specla.backends.numba.jit import Launch, kernel
from specla.backends.numba.primitives import contiguous, keep
from specla.backends.numba.vector_code import address, splat

SHARED_VALUES = 1 << 15
"""Activations from which quantising is cut over threads."""
_ROUNDER = 12582912.0  # 1.5 * 2^23: adding it rounds to an integer
_ROUNDER_BITS = int(np.float32(_ROUNDER).view(np.int32))
_I8, _I16, _I32 = (ir.IntType(n) for n in (8, 16, 32))
_FLOAT = ir.FloatType()


def _fold(builder: Any, vector: Any, combine: Callable[[Any, Any], Any]) -> Any:
    """One lane out of all, in pairs of halves."""
    while vector.type.count > 1:
        count = vector.type.count // 2
        vector = combine(*(_cut(builder, vector, count, half) for half in (0, 1)))
    return builder.extract_element(vector, ir.Constant(_I32, 0))


def _cut(builder: Any, vector: Any, count: int, part: int) -> Any:
    lanes = [part * count + i for i in range(count)]
    return builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(_I32, count), lanes))


def _quantise_block(
    typing_context: Any, x: Any, values: Any, pairs: Any, scale: Any, sums: Any
) -> Any:
    """Quantise the 32 floats at address x. The others are where a block's results go; pairs may
    be 0: nowhere."""
    signature = types.void(*[types.int64] * 5)

    def generate(context: Any, b: Any, signature: Any, arguments: Any) -> Any:
        x, values, pairs, scale, sums = arguments

        def constant(element: Any, value: Any) -> Any:
            return ir.Constant(ir.VectorType(element, 32), [value] * 32)

        def pointer(base: Any, element: Any, count: int = 32) -> Any:
            kind = ir.VectorType(element, count) if count > 1 else element
            return b.inttoptr(base, kind.as_pointer())

        def larger(u: Any, v: Any) -> Any:
            return b.select(b.icmp_signed(">", u, v), u, v)

        a = b.load(pointer(x, _FLOAT), align=4)
        # as integers, |x| has the order of floats, and NaN above all of them
        size = b.and_(b.bitcast(a, ir.VectorType(_I32, 32)), constant(_I32, 0x7FFFFFFF))
        s = b.fdiv(b.bitcast(_fold(b, size, larger), _FLOAT), ir.Constant(_FLOAT, 127.0))
        one, zero = ir.Constant(_FLOAT, 1.0), ir.Constant(_FLOAT, 0.0)
        divisor = b.select(b.fcmp_ordered("==", s, zero), one, s)
        quotient = b.fdiv(a, splat(b, divisor, 32))
        # beyond 127 only by little (a coarse, subnormal scale), so the rounder serves
        rounded = b.fadd(quotient, constant(_FLOAT, _ROUNDER))
        whole = b.sub(b.bitcast(rounded, size.type), constant(_I32, _ROUNDER_BITS))
        whole = larger(whole, constant(_I32, -127))
        top = constant(_I32, 127)
        whole = b.select(b.icmp_signed("<", whole, top), whole, top)
        whole = b.select(b.fcmp_ordered("ord", quotient, quotient), whole, constant(_I32, 0))
        b.store(b.trunc(whole, ir.VectorType(_I8, 32)), pointer(values, _I8), 1)
        b.store(s, pointer(scale, _FLOAT, 1), 4)
        short = b.trunc(whole, ir.VectorType(_I16, 32))
        both = ir.Constant(ir.VectorType(_I16, 2), ir.Undefined)
        for half in (0, 1):
            total = _fold(b, _cut(b, short, 16, half), b.add)
            both = b.insert_element(both, total, ir.Constant(_I32, half))
        b.store(both, pointer(sums, _I16, 2), 2)
        order = [4 * j + i for j in range(8) for i in (0, 2, 1, 3)]
        with b.if_then(b.icmp_unsigned("!=", pairs, ir.Constant(pairs.type, 0))):
            mask = ir.Constant(ir.VectorType(_I32, 32), order)
            b.store(b.shuffle_vector(short, short, mask), pointer(pairs, _I16), 2)
        return context.get_dummy_value()

    return signature, generate


_block: Any = intrinsic(_quantise_block)


@kernel(
    "void(float32[:, :], int8[:, ::1], float32[:, ::1], int16[:, :, ::1], int16[:, ::1], "
    "intp, intp)"
)
def quantise(x: Any, values: Any, scale: Any, sums: Any, pairs: Any, first: int, last: int) -> None:
    """See Backend.quantise. x [N, K]; the others as in QuantisedRows, pairs [N, 0] for none: the
    values as dot.py's methods ``pairs`` want them. Units: rows."""
    blocks, cols = scale.shape[1], x.shape[1]
    padded = np.zeros(32, np.float32)
    for n in range(first, last):
        row = contiguous(x[n])
        for block in range(blocks):
            at = address(row) + 128 * block
            left = cols - 32 * block
            if left < 32:
                for i in range(left):
                    padded[i] = row[32 * block + i]
                at = address(padded)
            to = n * blocks + block
            to_pairs = address(pairs) + 64 * to if pairs.shape[1] else 0
            _block(
                at,
                address(values) + 32 * to,
                to_pairs,
                address(scale) + 4 * to,
                address(sums) + 4 * to,
            )
    keep(padded)


def run(x: Any, out: QuantisedRows, launch: Launch) -> None:
    """See Backend.quantise."""
    pairs = np.empty((len(x), 0), np.int16) if out.pairs is None else out.pairs
    share = out.values.size >= SHARED_VALUES
    launch(quantise, len(x), x, out.values, out.scale, out.sums, pairs, share=share)
