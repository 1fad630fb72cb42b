"""The Jinja sandbox that chat templates run in. Imported only when a template is compiled.

Templates come from model files. Jinja's own sandbox keeps them from Python's internals; this one
keeps them from taking for ever or filling the memory as well: whatever they call, compare, join or
print is on a meter (meter.py, steps.py, growth.py).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from types import GeneratorType
from typing import Any

from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, LoopControlExtension
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from specla.models.tokenizer import growth
from specla.models.tokenizer.meter import CALL, current, weight
from specla.models.tokenizer.steps import HOOKS, Hook, MeteredGenerator

_JINJAS_OWN = {"_loop_vars", "_block_vars"}
"""Arguments that compiled code adds to every call, and that no function gets."""


class Environment(ImmutableSandboxedEnvironment):
    """Jinja's immutable sandbox on a meter; errors out on forbidden access."""

    code_generator_class = MeteredGenerator
    intercepted_binops = frozenset(("+", "-", "*", "**", "/", "//", "%"))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            growth.power(left, right)
        elif operator == "*":
            growth.product(left, right)
        elif operator == "%" and isinstance(left, str):
            growth.percent(left, right)
        current().spend(weight(left) + weight(right))
        return super().call_binop(context, operator, left, right)

    def call(self, context: Context, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        if type(function) is Hook:
            return function.function(*args)
        meter = current()
        meter.spend(CALL)
        _check_method(function, args, kwargs)
        meter.weigh(args, *(kwargs[name] for name in kwargs.keys() - _JINJAS_OWN))
        return _made(super().call(context, function, *args, **kwargs))

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(argument, tuple):
            current().weigh(argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in growth.REMOVED_METHODS and super().is_safe_attribute(obj, attr, value)

    def unsafe_undefined(self, obj: Any, attribute: str) -> Undefined:
        # Jinja's own answer is an undefined value, which prints as nothing: say it instead.
        raise SecurityError(f"access to attribute {attribute!r} is not allowed")


def _check_method(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Weigh the object of a method, and what the method makes of it."""
    # str.format comes as a wrapper of the sandbox's around the method
    method = getattr(function, "__wrapped__", function)
    owner, name = getattr(method, "__self__", None), getattr(method, "__name__", "")
    if isinstance(owner, str):
        current().spend(len(owner))
        if name in ("format", "format_map"):
            growth.braces(owner, [args, kwargs])
        elif name in growth.METHODS:
            named = (kwargs[key] for key in kwargs.keys() - _JINJAS_OWN)
            growth.METHODS[name](owner, *args, *named)
    elif isinstance(owner, (list, tuple)):
        current().weigh(owner)


def _made(value: Any) -> Any:
    """A value that was just made: paid for, and if it makes others, they will be."""
    if isinstance(value, GeneratorType):
        return growth.each(value)
    if not isinstance(value, range):  # which makes its numbers when they are asked for
        current().spend(weight(value))
    return value


def _metered_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    check, lazy = growth.FILTERS.get(name), name in growth.LAZY_FILTERS
    skipped = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        meter = current()
        meter.spend(CALL)
        given = args[skipped:]
        if given and isinstance(given[0], GeneratorType) and not lazy:
            given = (list(given[0]), *given[1:])
        if name not in growth.CONSTANT_FILTERS:
            meter.weigh(*(given[1:] if lazy else given), kwargs)
        if check is not None:
            check(*given, **kwargs)
        result = function(*args[:skipped], *given, **kwargs)
        return result if name in growth.CONSTANT_FILTERS else _made(result)

    return metered


def _metered_test(name: str, function: Any) -> Callable[..., Any]:
    @wraps(function)
    def metered(*args: Any, **kwargs: Any) -> Any:
        meter = current()
        meter.spend(CALL)
        if name not in growth.CONSTANT_TESTS:
            meter.weigh(args, kwargs)
        return function(*args, **kwargs)

    return metered


def _printed(value: Any) -> Any:
    """Every value that a template prints goes through here."""
    current().weigh(value)
    return value


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

    def __repr__(self) -> str:
        # without what it holds, which may be itself
        return "<Namespace>"


def make_environment(filters: dict[str, Callable[..., Any]]) -> Environment:
    """A fresh sandbox with the white-space rules and extensions that chat templates expect.

    filters: more of them, by name; metered like Jinja's own.
    """
    environment = Environment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[GenerationBlock, LoopControlExtension],
        finalize=_printed,
    )
    for name, hook in HOOKS.items():
        setattr(environment, name, hook)
    environment.globals["namespace"] = PlainNamespace
    environment.globals["range"] = growth.numbers
    del environment.globals["lipsum"]
    environment.filters = {
        name: _metered_filter(name, function)
        for name, function in {**environment.filters, **filters}.items()
        if name not in growth.REMOVED_FILTERS
    }
    environment.tests = {
        name: _metered_test(name, function) for name, function in environment.tests.items()
    }
    return environment


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise SecurityError(f"namespace attribute {name!r} begins with an underscore")
