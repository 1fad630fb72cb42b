"""Float instructions: float32, and 16-bit floats alone or in pairs.

Sums, products and quotients of 16-bit floats are computed in float32 and rounded again. That equals
one rounding, as 24 bits are no fewer than twice 11 plus 2 (Figueroa, "When is double rounding
innocuous?", ACM SIGNUM Newsletter 30 (1995)).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx.fma import fma16, fma32, fma_bf16
from ptx.lanes import Lanes
from ptx.ops.table import FLOATS, entry
from ptx.parse import Instruction, Operand
from ptx.scalars import Array, float_bits, round_bf16, widen_bf16

ROUNDED = ("rn",)


def read_float(lanes: Lanes, operand: Operand, kind: str) -> Array:
    """float32, float16, or bfloat16 widened; a pair has two values per lane."""
    if kind == "f32":
        return lanes.read(operand, np.float32)
    if kind == "f16":
        return lanes.read(operand, np.float16)
    if kind == "bf16":
        return widen_bf16(lanes.read(operand, np.uint16))
    word = lanes.read(operand, np.uint32)
    return word.view(np.float16) if kind == "f16x2" else widen_bf16(word.view(np.uint16))


def write_float(lanes: Lanes, operand: Operand, value: Array, kind: str) -> None:
    """Round to the type and write; NaNs become the canonical one."""
    if kind.startswith("bf16"):
        bits = round_bf16(value.astype(np.float32))
    else:
        narrow = np.float32 if kind == "f32" else np.float16
        bits = float_bits(value.astype(narrow, copy=False))
    lanes.write(operand, bits.view(np.uint32) if kind.endswith("x2") else bits)


def _binary(name: str, function: Callable[[Array, Array], Array]) -> None:
    kinds = ("f32",) if name == "div" else FLOATS

    @entry(name, kinds, ROUNDED)
    def operation(lanes: Lanes, code: Instruction) -> None:
        target, a, b = code.operands
        x, y = read_float(lanes, a, code.type), read_float(lanes, b, code.type)
        write_float(lanes, target, function(x, y), code.type)


for _name, _function in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
}.items():
    _binary(_name, _function)


@entry("fma", FLOATS, ROUNDED)
def fused_multiply_add(lanes: Lanes, code: Instruction) -> None:
    target, *sources = code.operands
    kind = code.type
    if kind.startswith("bf16"):
        whole = np.uint32 if kind == "bf16x2" else np.uint16
        bits = fma_bf16(*(lanes.read(source, whole).view(np.uint16) for source in sources))
        lanes.write(target, bits.view(whole))
        return
    values = [read_float(lanes, source, kind) for source in sources]
    write_float(lanes, target, (fma32 if kind == "f32" else fma16)(*values), kind)


@entry("sqrt", ("f32",), ROUNDED)
def square_root(lanes: Lanes, code: Instruction) -> None:
    write_float(lanes, code.operands[0], np.sqrt(read_float(lanes, code.operands[1], "f32")), "f32")


@entry("rcp", ("f32",), ROUNDED)
def reciprocal(lanes: Lanes, code: Instruction) -> None:
    x = read_float(lanes, code.operands[1], "f32")
    write_float(lanes, code.operands[0], np.float32(1) / x, "f32")


_SIGN = {
    "f32": 0x80000000,
    "f16": 0x8000,
    "bf16": 0x8000,
    "f16x2": 0x80008000,
    "bf16x2": 0x80008000,
}


def _bits_of(kind: str) -> type:
    return np.uint16 if kind in ("f16", "bf16") else np.uint32


@entry("neg", FLOATS, ())
def negate(lanes: Lanes, code: Instruction) -> None:
    bits = lanes.read(code.operands[1], _bits_of(code.type))
    lanes.write(code.operands[0], bits ^ bits.dtype.type(_SIGN[code.type]))


@entry("abs", FLOATS, ())
def absolute(lanes: Lanes, code: Instruction) -> None:
    bits = lanes.read(code.operands[1], _bits_of(code.type))
    lanes.write(code.operands[0], bits & ~bits.dtype.type(_SIGN[code.type]))


def choose(x: Array, y: Array, lowest: bool, keep_nan: bool) -> Array:
    """PTX's min and max: -0.0 lies below +0.0; a NaN loses against a number unless ``keep_nan``."""
    below = (x < y) | ((x == y) & np.signbit(x))
    chosen = np.where(below == lowest, x, y)
    x_nan, y_nan = np.isnan(x), np.isnan(y)
    if keep_nan:
        return np.where(x_nan | y_nan, np.array(np.nan, x.dtype), chosen)
    return np.where(x_nan, y, np.where(y_nan, x, chosen))


def _extreme(name: str, lowest: bool) -> None:
    @entry(name, FLOATS, ("NaN", "xorsign", "abs"))
    def operation(lanes: Lanes, code: Instruction) -> None:
        target, a, *others = code.operands
        keep_nan, by_size = "NaN" in code.modifiers, "xorsign" in code.modifiers
        result = read_float(lanes, a, code.type)
        for other in others:
            y = read_float(lanes, other, code.type)
            if by_size:
                negative = np.signbit(result) ^ np.signbit(y)
                size = choose(np.abs(result), np.abs(y), lowest, keep_nan)
                result = np.where(negative, -size, size)
            else:
                result = choose(result, y, lowest, keep_nan)
        write_float(lanes, target, result, code.type)


_extreme("min", lowest=True)
_extreme("max", lowest=False)
