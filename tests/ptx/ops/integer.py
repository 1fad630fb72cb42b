"""Integer and logical instructions; all wrap around."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx.lanes import Lanes
from ptx.ops.table import INTEGERS, PAIRS, entry
from ptx.parse import Instruction
from ptx.scalars import Array, numpy_type

_ONE, _TOP = np.uint64(1), np.uint64(63)
_WIDE = {
    np.int16: np.int32,
    np.uint16: np.uint32,
    np.int32: np.int64,
    np.uint32: np.uint64,
}


def _binary(name: str, function: Callable[[Array, Array], Array]) -> None:
    @entry(name, INTEGERS, ())
    def operation(lanes: Lanes, code: Instruction) -> None:
        target, a, b = code.operands
        lanes.write(target, function(lanes.typed(a, code.type), lanes.typed(b, code.type)))


for _name, _function in {
    "add": np.add,
    "sub": np.subtract,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "min": np.minimum,
    "max": np.maximum,
}.items():
    _binary(_name, _function)


def _pairwise(name: str, function: Callable[[Array, Array], Array]) -> None:
    @entry(name, PAIRS, ())
    def operation(lanes: Lanes, code: Instruction) -> None:
        target, a, b = code.operands
        half = numpy_type(code.type.removesuffix("x2"))
        x, y = (lanes.read(operand, np.uint32).view(half) for operand in (a, b))
        lanes.write(target, function(x, y).view(np.uint32))


for _name, _function in {"add": np.add, "min": np.minimum, "max": np.maximum}.items():
    _pairwise(_name, _function)


def _product(lanes: Lanes, code: Instruction) -> Array:
    """Of the first two sources: the low half, the high half, or all of it (``wide``)."""
    _, a, b, *_ = code.operands
    x, y = lanes.typed(a, code.type), lanes.typed(b, code.type)
    part = code.modifiers[0]
    if part == "lo":
        return x * y
    if part == "hi" and x.dtype.itemsize == 8:
        exact = x.astype(object) * y.astype(object)
        return np.array([value >> 64 for value in exact]).astype(x.dtype)
    wide = _WIDE[x.dtype.type]
    product = x.astype(wide) * y.astype(wide)
    if part == "hi":
        return (product >> wide(8 * x.dtype.itemsize)).astype(x.dtype)
    return product


@entry("mul", INTEGERS, ("lo", "hi", "wide"))
def multiply(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], _product(lanes, code))


@entry("mad", INTEGERS, ("lo", "hi", "wide"))
def multiply_add(lanes: Lanes, code: Instruction) -> None:
    product = _product(lanes, code)
    lanes.write(code.operands[0], product + lanes.read(code.operands[3], product.dtype.type))


@entry("div", INTEGERS, ())
def divide(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], _quotient(lanes, code)[0])


@entry("rem", INTEGERS, ())
def remainder(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], _quotient(lanes, code)[1])


def _quotient(lanes: Lanes, code: Instruction) -> tuple[Array, Array]:
    """Towards zero, and what remains. PTX leaves a division by zero open; here all bits are set."""
    _, a, b = code.operands
    x, y = lanes.typed(a, code.type), lanes.typed(b, code.type)
    zero = y == 0
    divisor = np.where(zero, y.dtype.type(1), y)
    rest = np.fmod(x, divisor)
    quotient = (x - rest) // divisor
    return np.where(zero, ~x.dtype.type(0), quotient), np.where(zero, x, rest)


@entry("neg", ("s16", "s32", "s64"), ())
def negate(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], -lanes.typed(code.operands[1], code.type))


@entry("abs", ("s16", "s32", "s64"), ())
def absolute(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], np.abs(lanes.typed(code.operands[1], code.type)))


@entry("not", INTEGERS, ())
def invert(lanes: Lanes, code: Instruction) -> None:
    lanes.write(code.operands[0], ~lanes.typed(code.operands[1], code.type))


def _shift(name: str, function: Callable[[Array, Array], Array]) -> None:
    @entry(name, INTEGERS, ())
    def operation(lanes: Lanes, code: Instruction) -> None:
        target, a, by = code.operands
        x, count = lanes.typed(a, code.type), lanes.read(by, np.uint32)
        bits = x.dtype.itemsize * 8
        # PTX shifts by more than the width out of the register; C leaves that open
        inside = np.minimum(count, bits - 1).astype(x.dtype)
        moved = function(x, inside)
        beyond = moved if name == "shr" and x.dtype.kind == "i" else np.zeros_like(x)
        lanes.write(target, np.where(count < bits, moved, beyond))


_shift("shl", np.left_shift)
_shift("shr", np.right_shift)


@entry("shf", ("b32",), ("l", "r", "wrap", "clamp"))
def funnel_shift(lanes: Lanes, code: Instruction) -> None:
    """Shift the 64 bits b:a; keep the high word (left) or the low one (right)."""
    target, a, b, by = code.operands
    count = lanes.read(by, np.uint32).astype(np.uint64)
    count = count & np.uint64(31) if "wrap" in code.modifiers else np.minimum(count, np.uint64(32))
    high, low = lanes.read(b, np.uint32), lanes.read(a, np.uint32)
    both = (high.astype(np.uint64) << np.uint64(32)) | low
    if "l" in code.modifiers:
        lanes.write(target, ((both << count) >> np.uint64(32)).astype(np.uint32))
    else:
        lanes.write(target, (both >> count).astype(np.uint32))


@entry("bfe", ("u32", "s32", "u64", "s64"), ())
def extract_field(lanes: Lanes, code: Instruction) -> None:
    """``length`` bits from ``start``, extended by the field's sign if the type is signed."""
    target, a, start, length = code.operands
    x = lanes.typed(a, code.type)
    bits = x.dtype.itemsize * 8
    word = x.view(f"u{x.dtype.itemsize}").astype(np.uint64)
    first = (lanes.read(start, np.uint32) & np.uint32(0xFF)).astype(np.uint64)
    size = (lanes.read(length, np.uint32) & np.uint32(0xFF)).astype(np.uint64)
    mask = np.where(size < 64, (_ONE << np.minimum(size, _TOP)) - _ONE, ~np.uint64(0))
    field = np.where(first < bits, word >> np.minimum(first, _TOP), 0) & mask
    if x.dtype.kind == "i":
        sign_at = np.minimum(first + size - _ONE, np.uint64(bits - 1))
        negative = ((word >> sign_at) & _ONE).astype(np.bool_) & (size > 0)
        field = np.where(negative, field | ~mask, field)
    lanes.write(target, field.astype(f"u{x.dtype.itemsize}"))


@entry("bfi", ("b32", "b64"), ())
def insert_field(lanes: Lanes, code: Instruction) -> None:
    """The low ``length`` bits of a into b at ``start``."""
    target, a, b, start, length = code.operands
    x, y = lanes.typed(a, code.type), lanes.typed(b, code.type)
    bits = x.dtype.itemsize * 8
    first = (lanes.read(start, np.uint32) & np.uint32(0xFF)).astype(x.dtype)
    size = (lanes.read(length, np.uint32) & np.uint32(0xFF)).astype(x.dtype)
    one, top = x.dtype.type(1), x.dtype.type(bits - 1)
    ones = np.where(size >= bits, ~x.dtype.type(0), (one << np.minimum(size, top)) - one)
    mask = np.where(first >= bits, x.dtype.type(0), ones << np.minimum(first, top))
    lanes.write(target, (y & ~mask) | ((x << np.minimum(first, top)) & mask))


@entry("prmt", ("b32",), ())
def permute_bytes(lanes: Lanes, code: Instruction) -> None:
    """Each nibble of the selector picks one of the eight bytes b:a, or (bit 3) copies its sign."""
    target, a, b, selector = code.operands
    # compilers leave bytes undefined that nobody looks at
    low, high = lanes.perhaps(a, np.uint32), lanes.perhaps(b, np.uint32)
    source = np.stack([low, high], axis=1).view(np.uint8).reshape(-1, 8)
    choice = lanes.read(selector, np.uint32)
    picked = np.empty((lanes.count, 4), np.uint8)
    row = np.arange(lanes.count)
    for place in range(4):
        nibble = choice >> np.uint32(4 * place)
        byte = source[row, nibble & np.uint32(7)]
        sign = np.where(byte & 0x80, np.uint8(0xFF), np.uint8(0))
        picked[:, place] = np.where(nibble & np.uint32(8), sign, byte)
    lanes.write(target, picked.view(np.uint32)[:, 0])


_LOGIC = (0xF0, 0xCC, 0xAA)


@entry("lop3", ("b32",), ())
def logic_of_three(lanes: Lanes, code: Instruction) -> None:
    """Any function of three bits, given as the result for (0xF0, 0xCC, 0xAA)."""
    target, *sources, table = code.operands
    words = [lanes.read(source, np.uint32) for source in sources]
    truth = int(lanes.read(table, np.uint32)[0])
    result = np.zeros(lanes.count, np.uint32)
    for case in range(8):
        if truth >> case & 1:
            term = np.full(lanes.count, 0xFFFFFFFF, np.uint32)
            for word, pattern in zip(words, _LOGIC, strict=True):
                term &= word if pattern >> case & 1 else ~word
            result |= term
    lanes.write(target, result)


@entry("popc", ("b32", "b64"), ())
def count_bits(lanes: Lanes, code: Instruction) -> None:
    x = lanes.typed(code.operands[1], code.type)
    bits = np.unpackbits(x.view(np.uint8).reshape(lanes.count, -1), axis=1)
    lanes.write(code.operands[0], bits.sum(axis=1).astype(np.uint32))


@entry("clz", ("b32", "b64"), ())
def leading_zeros(lanes: Lanes, code: Instruction) -> None:
    x = lanes.typed(code.operands[1], code.type)
    size = x.dtype.itemsize * 8
    lengths = np.array([size - int(value).bit_length() for value in x], np.uint32)
    lanes.write(code.operands[0], lengths)


@entry("brev", ("b32", "b64"), ())
def reverse_bits(lanes: Lanes, code: Instruction) -> None:
    x = lanes.typed(code.operands[1], code.type)
    bits = np.unpackbits(x.view(np.uint8).reshape(lanes.count, -1), axis=1, bitorder="little")
    lanes.write(code.operands[0], np.packbits(bits, axis=1).view(x.dtype.newbyteorder(">"))[:, 0])
