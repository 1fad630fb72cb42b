"""Moves between registers, and conversions between types."""

from __future__ import annotations

import numpy as np

from ptx.errors import UnsupportedError
from ptx.lanes import Lanes
from ptx.ops.floating import read_float, write_float
from ptx.ops.table import INTEGERS, entry
from ptx.parse import Instruction, Vector
from ptx.scalars import WIDTHS, Array, numpy_type, round_bf16, unsigned

_MOVED = (*(kind for kind in INTEGERS if WIDTHS[kind] > 8), "f32", "f16")


@entry("mov", _MOVED, ())
def move(lanes: Lanes, code: Instruction) -> None:
    """Copy bits; a vector is packed into a word, or taken out of it, lowest part first."""
    target, source = code.operands
    bits = WIDTHS[code.type]
    if isinstance(target, Vector):
        word = lanes.read(source, unsigned(bits))
        part = bits // len(target.parts)
        pieces = word.view(unsigned(part)).reshape(lanes.count, -1)
        for at, register in enumerate(target.parts):
            lanes.write(register, pieces[:, at])
    elif isinstance(source, Vector):
        part = unsigned(bits // len(source.parts))
        pieces = np.stack([lanes.read(piece, part) for piece in source.parts], axis=1)
        lanes.write(target, pieces.view(unsigned(bits))[:, 0])
    else:
        lanes.write(target, lanes.read(source, unsigned(bits)))


_FLOATS = ("f32", "f16", "bf16")
_PAIRS = ("f16x2", "bf16x2")
_TO_INTEGER = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@entry("cvt")
def convert(lanes: Lanes, code: Instruction) -> None:
    """Between integers (sat clamps), to and from floats, and between floats."""
    *flags, to, of = code.modifiers
    if to in _PAIRS and of == "f32" and flags == ["rn"]:
        _pack(lanes, code, to)
    elif to in INTEGERS and of in INTEGERS and flags in ([], ["sat"]):
        lanes.write(code.operands[0], _integer(lanes.typed(code.operands[1], of), to, flags))
    elif to in INTEGERS and of in _FLOATS and len(flags) == 1 and flags[0] in _TO_INTEGER:
        x = read_float(lanes, code.operands[1], of)
        lanes.write(code.operands[0], _clamped(_TO_INTEGER[flags[0]](x), to))
    elif to in _FLOATS and of in INTEGERS and flags == ["rn"]:
        _from_integer(lanes, code, to, of)
    elif to in _FLOATS and of in _FLOATS:
        _between_floats(lanes, code, flags, to, of)
    else:
        raise UnsupportedError(f"conversion {code.text!r}")


def _pack(lanes: Lanes, code: Instruction, to: str) -> None:
    """Two floats into a pair: the first becomes the upper half."""
    target, upper, lower = code.operands
    pair = np.stack([read_float(lanes, x, "f32") for x in (lower, upper)], axis=1).reshape(-1)
    write_float(lanes, target, pair, to)


def _integer(x: Array, to: str, flags: list[str]) -> Array:
    wanted = numpy_type(to)
    if flags:
        limits = np.iinfo(wanted)
        low = max(int(limits.min), int(np.iinfo(x.dtype).min))
        x = np.clip(x, low, min(int(limits.max), int(np.iinfo(x.dtype).max)))
    return x.astype(wanted)


def _clamped(x: Array, to: str) -> Array:
    """An integral float as an integer: clamped to its range, NaN to 0 (wide types: to 2^63)."""
    wanted = numpy_type(to)
    limits = np.iinfo(wanted)
    wide = x.astype(np.float64)
    inside = np.where(np.isnan(wide) | (wide < limits.min) | (wide >= limits.max), 0.0, wide)
    result = inside.astype(wanted)
    result = np.where(wide < limits.min, wanted(limits.min), result)
    result = np.where(wide >= limits.max, wanted(limits.max), result)
    if limits.bits == 64:
        result = np.where(np.isnan(wide), unsigned(64)(1 << 63).astype(wanted), result)
    return result.astype(wanted)


def _from_integer(lanes: Lanes, code: Instruction, to: str, of: str) -> None:
    x = lanes.typed(code.operands[1], of)
    if to == "f32":
        # one rounding, from any width
        write_float(lanes, code.operands[0], x.astype(np.float32), to)
    elif x.dtype.itemsize > 4:
        raise UnsupportedError(f"conversion {code.text!r}")
    elif to == "f16":
        # exact in float64, then one rounding
        write_float(lanes, code.operands[0], x.astype(np.float64).astype(np.float16), to)
    elif x.dtype.itemsize <= 2:
        write_float(lanes, code.operands[0], x.astype(np.float32), to)
    else:
        raise UnsupportedError(f"conversion {code.text!r}")


def _between_floats(lanes: Lanes, code: Instruction, flags: list[str], to: str, of: str) -> None:
    target, source = code.operands
    x = read_float(lanes, source, of)
    if to == of == "f32" and len(flags) == 1 and flags[0] in _TO_INTEGER:
        write_float(lanes, target, _TO_INTEGER[flags[0]](x), to)
    elif to == "f32" and of != "f32" and not flags:
        write_float(lanes, target, x.astype(np.float32), to)
    elif of == "f32" and flags == ["rn"]:
        write_float(lanes, target, x, to)
    elif to == "bf16" and of == "f16" and flags == ["rn"]:
        lanes.write(target, round_bf16(x.astype(np.float32)))
    else:
        raise UnsupportedError(f"conversion {code.text!r}")
