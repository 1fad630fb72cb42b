"""The Jinja sandbox that chat templates run in. Imported only when a template is compiled."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

MAX_PRODUCT = 1_000_000
"""Longest text or list that `*` may make, and largest factor, base or exponent bit count."""


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox; bounds multiplication, and errors out on forbidden access."""

    intercepted_binops = frozenset(("*", "**"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            _check_power(left, right)
        else:
            _check_product(left, right)
        return super().call_binop(context, operator, left, right)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        # Jinja's own answer is an undefined value, which prints as nothing: say it instead.
        raise SecurityError(f"access to attribute {attribute!r} is not allowed")


class GenerationBlock(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text for training: no effect.

    What is set inside stays inside.
    """

    tags = {"generation"}  # noqa: RUF012 (declared so by Jinja)

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body).set_lineno(line)


class PlainNamespace(Namespace):
    """`namespace(...)` that refuses names with a leading underscore."""

    def __init__(*args: Any, **kwargs: Any) -> None:
        self, *rest = args
        attributes = dict(*rest, **kwargs)
        for name in attributes:
            _check_name(name)
        Namespace.__init__(self, attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def make_environment() -> Environment:
    """A fresh sandbox with the white-space rules and extensions that chat templates expect."""
    environment = Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=[GenerationBlock, LoopControlExtension]
    )
    environment.globals["namespace"] = PlainNamespace
    return environment


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"namespace attribute {name!r} begins with an underscore")


def _check_product(left: Any, right: Any) -> None:
    for sequence, count in ((left, right), (right, left)):
        if isinstance(sequence, (str, bytes, list, tuple)) and isinstance(count, int):
            if len(sequence) * count > MAX_PRODUCT:
                raise SecurityError(f"a product of more than {MAX_PRODUCT} items is not allowed")
        elif isinstance(sequence, int) and sequence.bit_length() > MAX_PRODUCT:
            raise SecurityError("a product of huge integers is not allowed")


def _check_power(base: Any, exponent: Any) -> None:
    integers = isinstance(base, int) and isinstance(exponent, int)
    if integers and base.bit_length() * abs(exponent) > MAX_PRODUCT:
        raise SecurityError(f"a power of more than {MAX_PRODUCT} bits is not allowed")
