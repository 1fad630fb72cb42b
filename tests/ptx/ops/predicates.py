"""Comparisons, choices and logic of predicates."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx.errors import UnsupportedError
from ptx.lanes import Lanes
from ptx.ops.floating import read_float
from ptx.ops.table import FLOATS, INTEGERS, entry
from ptx.parse import Instruction, Pair
from ptx.scalars import WIDTHS, Array, unsigned

_COMPARE: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "lo": np.less,
    "ls": np.less_equal,
    "hi": np.greater,
    "hs": np.greater_equal,
}
_LOGIC: dict[str, Callable[[Array, Array], Array]] = {
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}
_SCALAR_FLOATS = tuple(kind for kind in FLOATS if not kind.endswith("x2"))


def _compared(kind: str, x: Array, y: Array) -> Array:
    """NaN compares false, but for ``ne`` being its opposite: PTX says false there too."""
    if x.dtype.kind != "f":
        return _COMPARE[kind](x, y)
    nan = np.isnan(x) | np.isnan(y)
    if kind in ("num", "nan"):
        return ~nan if kind == "num" else nan
    unordered = len(kind) == 3 and kind.endswith("u")
    return np.where(nan, unordered, _COMPARE[kind.removesuffix("u") if unordered else kind](x, y))


@entry("setp", (*INTEGERS, *_SCALAR_FLOATS))
def set_predicate(lanes: Lanes, code: Instruction) -> None:
    comparison, *logic, kind = code.modifiers
    target, a, b, *condition = code.operands
    if kind in FLOATS:
        result = _compared(comparison, read_float(lanes, a, kind), read_float(lanes, b, kind))
    else:
        result = _compared(comparison, lanes.typed(a, kind), lanes.typed(b, kind))
    if isinstance(target, Pair) or len(logic) != len(condition):
        raise UnsupportedError(f"{code.text!r}")
    if condition:
        result = _LOGIC[logic[0]](result, lanes.predicate(condition[0]))
    lanes.write(target, result)


@entry("selp", (*INTEGERS, "f32", "f16"), ())
def select(lanes: Lanes, code: Instruction) -> None:
    target, a, b, condition = code.operands
    bits = unsigned(WIDTHS[code.type])
    chosen = np.where(lanes.predicate(condition), lanes.read(a, bits), lanes.read(b, bits))
    lanes.write(target, chosen)


def _logic(name: str, function: Callable[[Array, Array], Array]) -> None:
    @entry(name, ("pred",), ())
    def operation(lanes: Lanes, code: Instruction) -> None:
        target, a, b = code.operands
        lanes.write(target, function(lanes.predicate(a), lanes.predicate(b)))


for _name, _function in _LOGIC.items():
    _logic(_name, _function)


@entry("not", ("pred",), ())
def invert(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], ~lanes.predicate(code.operands[1]))


@entry("mov", ("pred",), ())
def copy(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], lanes.predicate(code.operands[1]))
