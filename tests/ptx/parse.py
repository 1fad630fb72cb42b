"""PTX text into a program: instructions with resolved operands, parameters, shared memory."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from ptx.errors import UnsupportedError
from ptx.scalars import WIDTHS


@dataclass(frozen=True)
class Register:
    """bits: 1 for a predicate. A special register such as %tid.x has 32."""

    name: str
    bits: int
    special: bool = False


@dataclass(frozen=True)
class Immediate:
    """An integer, or the bits of a float of ``float_bits`` bits (0: an integer)."""

    value: int
    float_bits: int = 0


@dataclass(frozen=True)
class Address:
    """[base + offset]; base is a register, a symbol's offset in shared memory, or a parameter."""

    base: Register | int | str
    offset: int


@dataclass(frozen=True)
class Vector:
    """{a, b, ...}"""

    parts: tuple[Operand, ...]


@dataclass(frozen=True)
class Pair:
    """a|b: a destination and a predicate. Only shuffles write the second."""

    first: Operand
    second: Operand


@dataclass(frozen=True)
class Label:
    name: str


Operand = Register | Immediate | Address | Vector | Pair | Label


@dataclass(frozen=True)
class Instruction:
    """guard: the predicate that lets threads take part; runs where it is ``not negated``."""

    name: str
    modifiers: tuple[str, ...]
    operands: tuple[Operand, ...]
    guard: Register | None
    negated: bool
    text: str

    @property
    def type(self) -> str:
        """The last modifier: the type of most instructions."""
        return self.modifiers[-1] if self.modifiers else ""


@dataclass
class Program:
    """A kernel. threads: per block. parameters: name and bits, in order."""

    name: str = ""
    threads: int = 0
    parameters: list[tuple[str, int]] = field(default_factory=list)
    code: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    symbols: dict[str, int] = field(default_factory=dict)
    """Offsets in shared memory."""
    shared: int = 0
    """Bytes of shared memory that the text itself declares."""


_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\((.*?)\)([^{]*)\{", re.DOTALL)
_PARAMETER = re.compile(r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+([^,]*?)([\w$]+)\s*(?:,|$)")
_SHARED = re.compile(r"\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d*)\]")
_REGISTERS = re.compile(r"\.reg\s+\.(\w+)\s+([^;]+)")
_STATEMENT = re.compile(
    r"(?:@(?P<negated>!?)(?P<guard>%?[\w$]+)\s+)?(?P<op>[a-z][\w.:]*)\s*(?P<operands>.*)", re.DOTALL
)
_LABEL = re.compile(r"([$%\w]+):(?!:)\s*")
_SPECIAL = re.compile(r"%(tid|ntid|ctaid|nctaid)\.[xyz]|%laneid|%warpid")


def parse(text: str) -> Program:
    """The one kernel of a PTX module. Raises UnsupportedError."""
    text = _COMMENT.sub("", text)
    entries = list(_ENTRY.finditer(text))
    if len(entries) != 1 or re.search(r"\.func\b", text):
        raise UnsupportedError(f"a module of {len(entries)} kernels, or with functions")
    (entry,) = entries
    program = Program(name=entry.group(1))
    program.threads = _threads(entry.group(3))
    for kind, _, name in _PARAMETER.findall(entry.group(2)):
        program.parameters.append((name, WIDTHS[kind]))
    _place_symbols(text, program)
    body = _body(text[entry.end() :])
    _Body(program, body).read()
    return program


def _threads(directives: str) -> int:
    sizes = re.search(r"\.reqntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?", directives)
    if sizes is None:
        raise UnsupportedError("a kernel without .reqntid")
    count = 1
    for size in sizes.groups("1"):
        count *= int(size)
    return count


def _place_symbols(text: str, program: Program) -> None:
    """Fixed arrays first; the array without a size, which the launch sizes, at the same base."""
    for alignment, name, size in _SHARED.findall(text):
        start = -(-program.shared // int(alignment)) * int(alignment)
        program.symbols[name] = start
        program.shared = start + int(size or 0)


def _body(text: str) -> str:
    """Up to the brace that closes the kernel."""
    depth = 1
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace.group() == "{" else -1
        if depth == 0:
            return text[: brace.start()]
    raise UnsupportedError("a kernel without an end")


class _Body:
    """Reads statements one by one; knows the registers declared so far."""

    def __init__(self, program: Program, text: str) -> None:
        self.program = program
        self.text = text
        self.families: dict[str, int] = {}
        self.single: dict[str, int] = {}

    def read(self) -> None:
        # debug positions end with their line, not with a semicolon
        text = re.sub(r"^\s*\.(loc|pragma|file|branchtargets)\b.*$", "", self.text, flags=re.M)
        for statement in text.split(";"):
            self.statement(statement.strip())

    def statement(self, text: str) -> None:
        # braces that are no vector open and close a scope of inline code
        text = re.sub(r"^[{}\s]+", "", text)
        while label := _LABEL.match(text):
            self.program.labels[label.group(1)] = len(self.program.code)
            text = re.sub(r"^[{}\s]+", "", text[label.end() :])
        if not text:
            return
        if registers := _REGISTERS.match(text):
            self.declare(registers.group(1), registers.group(2))
        elif text.startswith("."):
            raise UnsupportedError(f"directive {text!r}")
        else:
            self.program.code.append(self.instruction(text))

    def declare(self, kind: str, names: str) -> None:
        for name in names.split(","):
            family = re.fullmatch(r"\s*([%\w$]+)<\d+>\s*", name)
            if family:
                self.families[family.group(1)] = WIDTHS[kind]
            else:
                self.single[name.strip()] = WIDTHS[kind]

    def instruction(self, text: str) -> Instruction:
        match = _STATEMENT.fullmatch(text)
        if match is None:
            raise UnsupportedError(f"statement {text!r}")
        name, *modifiers = match["op"].replace("::", "__").split(".")
        operands = tuple(self.operand(part) for part in _split(match["operands"]))
        guard = self.register(match["guard"]) if match["guard"] else None
        return Instruction(
            name, tuple(modifiers), operands, guard, bool(match["negated"]), " ".join(text.split())
        )

    def operand(self, text: str) -> Operand:
        if text.startswith("{"):
            return Vector(tuple(self.operand(part) for part in _split(text[1:-1])))
        if text.startswith("["):
            return self.address(text[1:-1])
        if "|" in text:
            first, second = text.split("|")
            return Pair(self.operand(first), self.operand(second))
        if number := _number(text):
            return number
        if text in self.program.symbols:
            return Immediate(self.program.symbols[text])
        register = self._find(text)
        return Label(text) if register is None else register

    def address(self, text: str) -> Address:
        base, sign, offset = re.fullmatch(r"\s*([%$\w]+)\s*(?:([+-])\s*(-?\w+))?\s*", text).groups()  # type: ignore[union-attr]
        far = int(f"{'-' if sign == '-' else ''}{offset or 0}", 0)
        if base in self.program.symbols:
            return Address(self.program.symbols[base], far)
        if number := _number(base):
            return Address(number.value, far)
        register = self._find(base)
        return Address(base if register is None else register, far)

    def register(self, name: str) -> Register:
        found = self._find(name)
        if found is None:
            raise UnsupportedError(f"register {name}")
        return found

    def _find(self, name: str) -> Register | None:
        if name in self.single:
            return Register(name, self.single[name])
        if _SPECIAL.fullmatch(name):
            return Register(name, 32, special=True)
        family = name.rstrip("0123456789")
        if family in self.families:
            return Register(name, self.families[family])
        if name.startswith("%"):
            raise UnsupportedError(f"register {name}")
        return None


def _number(text: str) -> Immediate | None:
    if re.fullmatch(r"0[fF][0-9a-fA-F]{8}", text):
        return Immediate(int(text[2:], 16), 32)
    if re.fullmatch(r"0[dD][0-9a-fA-F]{16}", text):
        return Immediate(int(text[2:], 16), 64)
    if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)U?", text):
        return Immediate(int(text.rstrip("U"), 0))
    return None


def _split(text: str) -> list[str]:
    """At commas outside braces."""
    if "{" not in text:
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    tail = text[start:].strip()
    return [*parts, tail] if tail else parts
