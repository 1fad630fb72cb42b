"""PTX types as NumPy types, and the 16-bit float that NumPy lacks."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ptx.errors import UnsupportedError

Array = npt.NDArray[Any]

NAN32 = np.uint32(0x7FFFFFFF)
NAN16 = np.uint16(0x7FFF)
"""The only NaNs that arithmetic makes."""

_BY_LETTER = {"b": "uint", "u": "uint", "s": "int", "f": "float"}
WIDTHS = {f"{letter}{bits}": bits for letter in "bus" for bits in (8, 16, 32, 64)}
WIDTHS |= {"f16": 16, "bf16": 16, "f32": 32, "f64": 64, "pred": 1}
WIDTHS |= {"f16x2": 32, "bf16x2": 32, "s16x2": 32, "u16x2": 32}

_UNSIGNED: dict[int, Any] = {
    1: np.bool_,
    8: np.uint8,
    16: np.uint16,
    32: np.uint32,
    64: np.uint64,
}


def unsigned(bits: int) -> Any:
    """The type of a register's content."""
    return _UNSIGNED[bits]


@cache
def numpy_type(name: str) -> Any:
    """The NumPy type of an integer, bit or float type; pairs and bfloat16 have none."""
    letter, bits = name[0], name[1:]
    if letter not in _BY_LETTER or WIDTHS.get(name) != int(bits or 0):
        raise UnsupportedError(f"type .{name}")
    return np.dtype(_BY_LETTER[letter] + bits).type


def widen_bf16(bits: Array) -> Array:
    """bfloat16 bits [uint16] as float32: exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_bf16(x: Array) -> Array:
    """float32 as bfloat16 bits, to nearest even; every NaN becomes the canonical one."""
    bits = x.view(np.uint32)
    up = np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))
    rounded = ((bits + up) >> 16).astype(np.uint16)
    return np.where(np.isnan(x), NAN16, rounded)


def float_bits(x: Array) -> Array:
    """A float result as register bits, its NaNs made canonical."""
    nan = np.isnan(x)
    if x.dtype == np.float32:
        return np.where(nan, NAN32, x.view(np.uint32)) if nan.any() else x.view(np.uint32)
    if x.dtype == np.float16:
        return np.where(nan, NAN16, x.view(np.uint16))
    raise UnsupportedError(f"results of {x.dtype}")
