"""The softmax of attention as LLVM vector code; rows of scores are given by their addresses."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from specla.backends.numba.attention_code import LANES, load_floats, shuffle, store_floats
from specla.backends.numba.elementary import cgutils, emit
from specla.backends.numba.vector_code import splat

BLOCK = 64
"""Positions whose weights are summed by one tree."""

_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_INT = types.int64


def _highest(typing_context: Any, at: Any, count: Any) -> Any:
    """Largest of ``count`` (a multiple of 32, not 0) floats; NaN if one of them is."""
    width = 4 * LANES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, count = arguments
        top = cgutils.alloca_once_value(builder, load_floats(builder, at, width))
        zero, step = ir.Constant(_I64, 0), ir.Constant(_I64, width)
        with cgutils.for_range_slice(builder, zero, count, step, _I64) as (index, _):
            entry = builder.add(at, builder.shl(index, ir.Constant(_I64, 2)))
            builder.store(
                _larger(builder, builder.load(top), load_floats(builder, entry, width)), top
            )
        result = builder.load(top)
        while result.type.count > 1:
            half = result.type.count // 2
            low, high = list(range(half)), list(range(half, 2 * half))
            one, two = (shuffle(builder, result, result, part) for part in (low, high))
            result = _larger(builder, one, two)
        return builder.extract_element(result, ir.Constant(_I32, 0))

    return types.float32(_INT, _INT), generate


def _larger(builder: Any, top: Any, x: Any) -> Any:
    """The larger of two; a NaN in either wins."""
    beyond = builder.not_(builder.fcmp_ordered("<=", x, top))
    lost = builder.fcmp_unordered("uno", top, top)
    return builder.select(builder.and_(beyond, builder.not_(lost)), x, top)


def _exp_block(typing_context: Any, at: Any, top: Any) -> Any:
    """Replace BLOCK floats x by exp(x - top); returns the tree over them."""
    width = 2 * LANES

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, top = arguments
        tops, parts = splat(builder, top, width), []
        for offset in range(0, 4 * BLOCK, 4 * width):
            x = load_floats(builder, at, width, offset)
            parts.append(emit("exp", builder, builder.fsub(x, tops)))
            store_floats(builder, parts[-1], at, offset)
        while len(parts) > 1:
            half = len(parts) // 2
            parts = [builder.fadd(parts[i], parts[i + half]) for i in range(half)]
        total = parts[0]
        while total.type.count > 1:
            half = total.type.count // 2
            low, high = list(range(half)), list(range(half, 2 * half))
            one, two = (shuffle(builder, total, total, part) for part in (low, high))
            total = builder.fadd(one, two)
        return builder.extract_element(total, ir.Constant(_I32, 0))

    return types.float32(_INT, types.float32), generate


highest: Any = intrinsic(_highest)
exp_block: Any = intrinsic(_exp_block)
