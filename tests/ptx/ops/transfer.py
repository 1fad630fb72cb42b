"""Loads, stores, asynchronous copies, atomics."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ptx.errors import PtxError, UnsupportedError
from ptx.lanes import Lanes
from ptx.ops.table import entry
from ptx.parse import Address, Instruction, Operand, Register, Vector
from ptx.scalars import WIDTHS, numpy_type, unsigned

_HINTS = ("nc", "weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys")
"""About caches and the order in which others see an access: nothing that lockstep can show."""


def _space(code: Instruction) -> str:
    for modifier in code.modifiers:
        if modifier in ("global", "param"):
            return modifier
        if modifier in ("shared", "shared__cta"):
            return "shared"
    raise UnsupportedError(f"address space of {code.text!r}")


def _parts(code: Instruction) -> int:
    """1, 2 or 4 words per lane; refuses what is no hint."""
    parts = 1
    for modifier in code.modifiers[:-1]:
        if modifier in ("v2", "v4", "v8"):
            parts = int(modifier[1:])
        elif modifier in ("global", "param", "shared", "shared__cta") or modifier in _HINTS:
            continue
        elif not modifier.startswith(("L1", "L2")):
            raise UnsupportedError(f"modifier .{modifier} of {code.text!r}")
    return parts


def _registers(operand: Operand) -> tuple[Operand, ...]:
    return operand.parts if isinstance(operand, Vector) else (operand,)


@entry("ld")
def load(lanes: Lanes, code: Instruction) -> None:
    target, source = code.operands[:2]
    if _space(code) == "param":
        assert isinstance(source, Address)
        width = unsigned(WIDTHS[code.type])
        if isinstance(source.base, Register):
            values = np.array(list(lanes.parameters.values()), np.uint64)
            place = lanes.read(source.base, np.int64)
            # lanes that take no part may hold anything
            place = place if lanes.active is None else np.where(lanes.active, place, 0)
            lanes.write(target, values[place].astype(width))
            return
        lanes.write(target, lanes.splat(lanes.parameters[str(source.base)], width))
        return
    memory, at = lanes.addresses(source, _space(code))
    registers = _registers(target)
    if len(registers) != _parts(code):
        raise PtxError(f"{len(registers)} registers")
    for register, word in zip(
        registers, memory.load(at, WIDTHS[code.type], len(registers)), strict=True
    ):
        value = lanes.spread(word)
        lanes.write(register, value.view(numpy_type(code.type)) if code.type[0] == "s" else value)


@entry("st")
def store(lanes: Lanes, code: Instruction) -> None:
    memory, at = lanes.addresses(code.operands[0], _space(code))
    registers = _registers(code.operands[1])
    if len(registers) != _parts(code):
        raise PtxError(f"{len(registers)} registers")
    bits = unsigned(WIDTHS[code.type])
    memory.store(at, [lanes.only_active(lanes.read(register, bits)) for register in registers])


@entry("cp")
def copy(lanes: Lanes, code: Instruction) -> None:
    """cp.async: global to shared memory, zeros after ``source size`` bytes; done at once."""
    if code.modifiers[0] != "async" or "bulk" in code.modifiers:
        raise UnsupportedError(f"instruction {code.text!r}")
    if code.modifiers[1] in ("commit_group", "wait_group", "wait_all"):
        return
    target, source, size, *rest = code.operands
    count = int(lanes.read(size, np.uint32)[0])
    shared, to = lanes.addresses(target, "shared")
    given = lanes.only_active(lanes.read(rest[0], np.uint32)) if rest else np.full(len(to), count)
    if (given > count).any() or (given % 4).any() or (to % count).any():
        raise PtxError("an asynchronous copy of an odd size, or not aligned")
    memory, of = lanes.addresses(source, "global")
    for word in range(count // 4):
        # bytes beyond the source's size are not even read
        inside = given > word * 4
        value = np.zeros(len(to), np.uint32)
        (value[inside],) = memory.load(of[inside] + word * 4, 32)
        shared.store(to + word * 4, [value])


_ATOMIC: dict[str, Callable[[int, int], int]] = {
    "add": lambda old, new: old + new,
    "min": min,
    "max": max,
    "and": lambda old, new: old & new,
    "or": lambda old, new: old | new,
    "xor": lambda old, new: old ^ new,
    "exch": lambda _, new: new,
}


def _atomic(lanes: Lanes, code: Instruction, place: Operand, values: tuple[Operand, ...]) -> None:
    """Thread after thread; the target, if there is one, gets what was there before."""
    kind = numpy_type(code.type)
    (name,) = [m for m in code.modifiers if m in _ATOMIC or m == "cas"] or [""]
    if np.dtype(kind).kind == "f" and name != "exch":
        raise UnsupportedError(f"{code.text!r}: the order of float atomics is open")
    if not name or any(m in ("noftz", "v2", "v4") for m in code.modifiers):
        raise UnsupportedError(f"instruction {code.text!r}")
    memory, addresses = lanes.addresses(place, _space(code))
    given = [lanes.only_active(lanes.read(value, kind)) for value in values]
    before = np.zeros(len(addresses), unsigned(WIDTHS[code.type]))
    mask = (1 << WIDTHS[code.type]) - 1
    for i in range(len(addresses)):
        at = addresses[i : i + 1]
        (word,) = memory.load(at, WIDTHS[code.type])
        before[i] = word[0]
        old, new = int(word.view(kind)[0]), [int(value[i]) for value in given]
        swapped = new[-1] if old == new[0] else old
        result = swapped if name == "cas" else _ATOMIC[name](old, new[0])
        memory.store(at, [np.array([result & mask], before.dtype)])
    if code.name == "atom":
        lanes.write(code.operands[0], lanes.spread(before))


@entry("atom")
def atomic(lanes: Lanes, code: Instruction) -> None:
    _atomic(lanes, code, code.operands[1], code.operands[2:])


@entry("red")
def reduce_in_memory(lanes: Lanes, code: Instruction) -> None:
    _atomic(lanes, code, code.operands[0], code.operands[1:])
