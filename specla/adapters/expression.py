"""Adapter expressions: ``NAME`` or ``NAME(ARGUMENT, ...)``, with blanks wherever you like.

The names are those of the registry; only combinators take arguments, which are expressions
themselves. ``adaptive(fallback(suffix, dspark))`` is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specla.adapters.base import Adapter, adapters, authored, option_fields, parse_options
from specla.adapters.combinator import Combinator, check_arity
from specla.errors import OptionError

MAX_DEPTH = 16
"""Deepest nesting: deeper is an accident."""

MAX_NAMES = 64
"""Most adapters in one expression: more is an accident, too."""

MAX_NAME = 100
"""Longest name."""


@dataclass(frozen=True)
class Expression:
    """A parsed expression. arguments: None for a name without parentheses."""

    name: str
    arguments: tuple[Expression, ...] | None = None

    def __str__(self) -> str:
        if self.arguments is None:
            return self.name
        return f"{self.name}({', '.join(map(str, self.arguments))})"

    def walk(self) -> Iterator[Expression]:
        """This one, then its arguments from left to right, each with its own."""
        yield self
        for argument in self.arguments or ():
            yield from argument.walk()


@dataclass(frozen=True)
class Resolved:
    """An expression whose names exist, with the classes and options of every name in it."""

    expression: Expression
    classes: dict[str, type[Adapter]]
    options: dict[str, Any]


def parse(text: str) -> Expression:
    """Raises OptionError, one line, for a malformed expression."""
    parser = _Parser(text)
    expression = parser.expression(1)
    if parser.next is not None:
        raise parser.malformed(f"{_shown(parser.next)} after its end")
    return expression


class _Parser:
    """next: the token that comes next, None at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        tokens = (token.strip() for token in re.findall(r"[(),]|[^(),]+", text))
        self._rest = iter([token for token in tokens if token])
        self._names = 0
        self._advance()

    def _advance(self) -> None:
        self.next = next(self._rest, None)

    def expression(self, depth: int) -> Expression:
        name = self.next
        if name is None or name in "(),":
            found = "its end" if name is None else _shown(name)
            raise self.malformed(f"an adapter's name is missing before {found}")
        if len(name) > MAX_NAME:
            raise self.malformed(f"{_shown(name)} is no adapter's name")
        self._names += 1
        if depth > MAX_DEPTH or self._names > MAX_NAMES:
            raise self.malformed(
                f"at most {MAX_NAMES} adapters, {MAX_DEPTH} deep in each other, can be used"
            )
        self._advance()
        if self.next != "(":
            return Expression(name)
        self._advance()
        arguments = []
        while self.next != ")":
            arguments.append(self.expression(depth + 1))
            if self.next == ",":
                self._advance()
                if self.next == ")":
                    raise self.malformed("an adapter's name is missing before ')'")
            elif self.next != ")":
                found = "its end" if self.next is None else _shown(self.next)
                raise self.malformed(f"',' or ')' is missing before {found}")
        self._advance()
        return Expression(name, tuple(arguments))

    def malformed(self, why: str) -> OptionError:
        shown = " ".join(self._text.split())
        if len(shown) > 100:
            shown = shown[:97] + "..."
        return OptionError(
            f"adapter expression {shown!r} is malformed: {why}; write NAME or NAME(NAME, ...)"
        )


def _shown(token: str) -> str:
    """A token in a message, whatever its length."""
    return repr(token) if len(token) <= MAX_NAME else f"{token[:20]!r}..."


def resolve(text: str, given: Mapping[str, str]) -> Resolved:
    """Everything that can be checked without making an adapter. Raises OptionError."""
    expression = parse(text)
    classes = {part.name: adapter_class(part.name) for part in expression.walk()}
    for part in expression.walk():
        _check_arguments(part, classes[part.name])
    sorted_out = _per_name(expression, classes, given)
    options = {
        name: parse_options(name, kind.Options, sorted_out[name]) for name, kind in classes.items()
    }
    return Resolved(expression, classes, options)


def build(text: str, given: Mapping[str, str]) -> Adapter:
    """The adapter that an expression describes. Raises OptionError."""
    resolved = resolve(text, given)

    def make(part: Expression) -> Adapter:
        kind, options = resolved.classes[part.name], resolved.options[part.name]
        if not issubclass(kind, Combinator):
            return kind(options)
        arguments = part.arguments or ()
        return kind(options, [make(argument) for argument in arguments], [*map(str, arguments)])

    return make(resolved.expression)


def adapter_class(name: str) -> type[Adapter]:
    """The class registered under a name. Raises OptionError, also where it is no adapter."""
    found = adapters.get(name)
    with authored(name, "class"):
        usable = isinstance(found, type) and issubclass(found, Adapter)
        _ = getattr(found, "Options", None)
    if not usable:
        raise OptionError(
            f"adapter {name!r} from {adapters.origin(name)} is no subclass of "
            f"specla.adapters.base.Adapter; tell its author"
        )
    return found


def _check_arguments(part: Expression, kind: type[Adapter]) -> None:
    if issubclass(kind, Combinator):
        with authored(part.name, "arity"):
            check_arity(part.name, kind, len(part.arguments or ()))
    elif part.arguments is not None:
        raise OptionError(f"adapter {part.name!r} is not made of others; write {part.name} alone")


def _per_name(
    expression: Expression, classes: Mapping[str, type[Adapter]], given: Mapping[str, str]
) -> dict[str, dict[str, str]]:
    """Which option goes to which adapters; ``name.key`` goes before ``key``."""
    known = {
        name: {field.name for field in option_fields(name, kind.Options)}
        for name, kind in classes.items()
    }
    result: dict[str, dict[str, str]] = {name: {} for name in classes}
    for key, value in given.items():
        # an adapter's name may contain dots, an option's can't
        owner, dot, bare = key.rpartition(".")
        if not dot:
            takers = [name for name in known if key in known[name]]
        else:
            takers = [owner] if bare in known.get(owner, ()) else []
        if not takers:
            listed = sorted(
                option if len(known) == 1 else f"{name}.{option}"
                for name, options in known.items()
                for option in options
            )
            raise OptionError(
                f"adapter {str(expression)!r} has no option {key[:MAX_NAME]!r}; "
                f"known: {', '.join(listed) or 'none'}"
            )
        for name in takers:
            if dot or f"{name}.{key}" not in given:
                result[name][bare] = value
    return result
