"""The table of instructions: a name and types lead to a function on lanes."""

from __future__ import annotations

from collections.abc import Callable

from ptx.errors import UnsupportedError
from ptx.lanes import Lanes
from ptx.parse import Instruction

Operation = Callable[[Lanes, Instruction], None]

INTEGERS = tuple(f"{letter}{bits}" for letter in "bus" for bits in (8, 16, 32, 64))
PAIRS = ("s16x2", "u16x2")
FLOATS = ("f32", "f16", "bf16", "f16x2", "bf16x2")
ANY = ("*",)
_TABLE: dict[tuple[str, str], Operation] = {}


def entry(
    name: str, types: tuple[str, ...] = ANY, modifiers: tuple[str, ...] | None = None
) -> Callable[[Operation], Operation]:
    """Decorator: enter an instruction for some types (its last modifier).

    modifiers: those that its function understands, besides the type; any other is refused, so that
    no ``.ftz``, ``.approx`` or ``.sat`` is overlooked. None: the function checks by itself.
    """

    def enter(operation: Operation) -> Operation:
        for kind in types:
            if (name, kind) in _TABLE:
                raise ValueError(f"two entries for {name}.{kind}")
            _TABLE[name, kind] = operation
            _ALLOWED[name, kind] = modifiers
        return operation

    return enter


_ALLOWED: dict[tuple[str, str], tuple[str, ...] | None] = {}


def operation_of(code: Instruction) -> Operation:
    """The function of an instruction. Raises UnsupportedError, which names it."""
    for key in ((code.name, code.type), (code.name, "*")):
        if key in _TABLE:
            allowed = _ALLOWED[key]
            others = code.modifiers[:-1] if key[1] != "*" else code.modifiers
            unknown = [] if allowed is None else [m for m in others if m not in allowed]
            if unknown:
                raise UnsupportedError(f"modifier .{unknown[0]} of {code.text!r}")
            return _TABLE[key]
    raise UnsupportedError(f"instruction {code.text!r}")
