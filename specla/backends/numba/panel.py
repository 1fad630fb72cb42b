"""What kernels of products call: one panel times a tile of tokens, and memory for it."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from specla.backends.numba.features import LEVELS
from specla.backends.numba.float_code import FloatAddresses, FloatCode
from specla.backends.numba.integer_code import IntegerCode
from specla.backends.numba.integer_weights import IntegerAddresses
from specla.backends.numba.jit import device
from specla.backends.numba.panel_code import PARTIAL_BYTES, Output
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.vector_code import load_float

MOST_TOKENS = 8
RESULTS = PARTIAL_BYTES * MOST_TOKENS
"""Where scratch, after a tile's partial sums, has room for the results of a panel that is not
whole."""
_SCRATCH_BYTES = RESULTS + 64 * MOST_TOKENS
_LINE = 64


def _integer_panel(
    typing_context: Any,
    kind: Any,
    level: Any,
    tokens: Any,
    quants: Any,
    subs: Any,
    scales: Any,
    x: Any,
    x_scale: Any,
    x_sums: Any,
    records: Any,
    record_step: Any,
    fresh: Any,
    partial: Any,
    out: Any,
    step: Any,
    blocks: Any,
    run: Any,
) -> Any:
    """kind, level (index in LEVELS) and tokens are literals, the rest int64: the fields of
    IntegerAddresses and Output, then the number of blocks and of blocks in a segment."""
    signature = types.void(kind, level, tokens, *[types.int64] * 14)
    code, how, count = kind.literal_value, LEVELS[level.literal_value], tokens.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, output = IntegerAddresses(*arguments[3:12]), Output(*arguments[12:15])
        IntegerCode(builder, code, how, count, at, output).write(*arguments[15:])
        return context.get_dummy_value()

    return signature, generate


def _float_panel(
    typing_context: Any,
    kind: Any,
    tokens: Any,
    quants: Any,
    x: Any,
    x_step: Any,
    fresh: Any,
    partial: Any,
    out: Any,
    step: Any,
    blocks: Any,
    run: Any,
) -> Any:
    """The same with the fields of FloatAddresses."""
    signature = types.void(kind, tokens, *[types.int64] * 9)
    code, count = kind.literal_value, tokens.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, output = FloatAddresses(*arguments[2:6]), Output(*arguments[6:9])
        FloatCode(builder, code, count, at, output).write(*arguments[9:])
        return context.get_dummy_value()

    return signature, generate


def _scratch(typing_context: Any) -> Any:
    """Address of memory on the stack for partial sums and RESULTS, good until the calling kernel
    returns."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        with builder.goto_entry_block():
            memory = builder.alloca(ir.ArrayType(ir.IntType(8), _SCRATCH_BYTES))
            memory.align = _LINE
        return builder.ptrtoint(memory, ir.IntType(64))

    return types.int64(), generate


integer_panel: Any = intrinsic(prefer_literal=True)(_integer_panel)
float_panel: Any = intrinsic(prefer_literal=True)(_float_panel)
scratch: Any = intrinsic(_scratch)


@device
def scatter(tile: int, first: int, count: int, start: int, out: Any) -> None:
    """Columns start.. of out, as far as it has them, from 16 floats per token at address tile."""
    for t in range(count):
        row = contiguous(out[first + t])
        for r in range(out.shape[1] - start):
            row[start + r] = load_float(tile + 64 * t + 4 * r)
