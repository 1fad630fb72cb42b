"""What the threads of a warp tell each other."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from ptx.errors import UnsupportedError
from ptx.lanes import WARP, Lanes
from ptx.ops.table import entry
from ptx.parse import Immediate, Instruction, Operand, Pair
from ptx.scalars import Array


def _everyone(lanes: Lanes, code: Instruction, members: Operand) -> None:
    lanes.whole(code, WARP)
    everyone = isinstance(members, Immediate) and members.value in (-1, 0xFFFFFFFF)
    if not everyone and not (lanes.read(members, np.uint32) == 0xFFFFFFFF).all():
        raise UnsupportedError(f"{code.text!r} of a part of a warp")


@entry("shfl", ("b32",), ("sync", "up", "down", "bfly", "idx"))
def shuffle(lanes: Lanes, code: Instruction) -> None:
    """Each thread reads a register of another; its own where that one is outside its segment."""
    target, a, by, bounds, members = code.operands
    _everyone(lanes, code, members)
    mode, lane = code.modifiers[1], lanes.lane
    step = lanes.read(by, np.uint32).astype(np.int64) & 31
    packed = lanes.read(bounds, np.uint32).astype(np.int64)
    clamp, segment = packed & 31, packed >> 8 & 31
    first, last = lane & segment, (lane & segment) | (clamp & ~segment)
    if mode == "up":
        source = lane - step
        inside = source >= last
    else:
        source = {
            "down": lane + step,
            "bfly": lane ^ step,
            "idx": first | (step & ~segment),
        }[mode]
        inside = source <= last
    source = np.where(inside, source, lane)
    value = lanes.read(a, np.uint32)[lanes.first_of_warp + source]
    if isinstance(target, Pair):
        lanes.write(target.second, inside)
        target = target.first
    lanes.write(target, value)


_REDUCE: dict[str, Callable[[Array], Array]] = {
    "add": lambda x: x.sum(axis=1, dtype=x.dtype),
    "min": lambda x: x.min(axis=1),
    "max": lambda x: x.max(axis=1),
    "and": lambda x: reduce(np.bitwise_and, x.T),
    "or": lambda x: reduce(np.bitwise_or, x.T),
    "xor": lambda x: reduce(np.bitwise_xor, x.T),
}


@entry("redux", ("s32", "u32", "b32"), ("sync", *_REDUCE))
def reduce_warp(lanes: Lanes, code: Instruction) -> None:
    target, a, members = code.operands
    _everyone(lanes, code, members)
    result = _REDUCE[code.modifiers[1]](lanes.typed(a, code.type).reshape(-1, WARP))
    lanes.write(target, np.repeat(result, WARP))


@entry("vote", ("pred", "b32"), ("sync", "all", "any", "uni", "ballot"))
def vote(lanes: Lanes, code: Instruction) -> None:
    target, a, members = code.operands
    _everyone(lanes, code, members)
    given = lanes.predicate(a).reshape(-1, WARP)
    mode = code.modifiers[1]
    if mode == "ballot":
        result: Array = np.packbits(given, axis=1, bitorder="little").view(np.uint32)[:, 0]
    elif mode == "uni":
        result = given.all(axis=1) | ~given.any(axis=1)
    else:
        result = given.all(axis=1) if mode == "all" else given.any(axis=1)
    lanes.write(target, np.repeat(result, WARP))


@entry("fence")
@entry("membar")
@entry("griddepcontrol")
@entry("prefetch")
def nothing(lanes: Lanes, code: Instruction) -> None:
    """Order and caches: lockstep has no other order."""
