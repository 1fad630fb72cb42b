"""A pass over a parsed template that puts its steps, comparisons and copies on the meter.

What a template calls goes through the sandbox anyway. What it can do without a call is looping,
comparing, joining with `~` and slicing: here each of them gets a call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator
from jinja2.exceptions import SecurityError
from jinja2.visitor import NodeTransformer

from specla.models.tokenizer.meter import CALL, NODE, current, weight

MAX_DEPTH = 20
"""Most loops and macros in each other, which is about what Python can compile."""


class Hook:
    """A function of ours that a compiled template calls, an attribute of its environment."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function


def _step(units: int) -> bool:
    current().spend(units)
    return True


def _weighed(value: Any) -> Any:
    current().weigh(value)
    return value


def _copied(value: Any) -> Any:
    current().spend(weight(value))
    return value


def _searched(value: Any) -> Any:
    # looking up a key is no search
    return value if isinstance(value, dict) else _weighed(value)


HOOKS = {
    "hook_step": Hook(_step),
    "hook_weighed": Hook(_weighed),
    "hook_copied": Hook(_copied),
    "hook_searched": Hook(_searched),
}
"""Attributes that the environment must have."""


class MeteredGenerator(CodeGenerator):
    """Jinja's code generator behind the pass."""

    def visit_Template(  # noqa: N802 (Jinja's name)
        self, node: nodes.Template, frame: Any = None
    ) -> None:
        _Metering().visit(node)
        node.set_environment(self.environment)
        super().visit_Template(node, frame)


class _Metering(NodeTransformer):
    def __init__(self) -> None:
        self._depth = 0

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802
        self._body(node)
        if node.test is not None:
            step = _call("hook_step", nodes.Const(CALL), node)
            node.test = nodes.And(step, node.test, lineno=node.lineno)
        return node

    def _body(self, node: Any) -> Any:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SecurityError(f"loops and macros more than {MAX_DEPTH} deep are not allowed")
        cost = _cost(node.body)
        self.generic_visit(node)
        self._depth -= 1
        step = nodes.ExprStmt(_call("hook_step", nodes.Const(cost), node), lineno=node.lineno)
        node.body.insert(0, step)
        return node

    visit_Macro = visit_CallBlock = visit_Block = _body  # noqa: N815

    def visit_Compare(self, node: nodes.Compare) -> nodes.Compare:  # noqa: N802
        parts = [node.expr, *(operand.expr for operand in node.ops)]
        searches = any(operand.op in ("in", "notin") for operand in node.ops)
        self.generic_visit(node)
        # against a text or a number nothing is walked through
        if len(parts) == 2 and not searches and any(isinstance(p, nodes.Const) for p in parts):
            return node
        node.expr = _walked(node.expr)
        for operand in node.ops:
            in_it = operand.op in ("in", "notin")
            operand.expr = _walked(operand.expr, "hook_searched" if in_it else "hook_weighed")
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Concat:  # noqa: N802
        self.generic_visit(node)
        node.nodes = [_walked(part) for part in node.nodes]
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Pair:  # noqa: N802
        self.generic_visit(node)
        node.key = _walked(node.key)
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Expr:  # noqa: N802
        self.generic_visit(node)
        return _call("hook_copied", node, node) if isinstance(node.arg, nodes.Slice) else node


def _call(hook: str, argument: nodes.Expr, at: nodes.Node) -> nodes.Call:
    function = nodes.EnvironmentAttribute(hook)
    return nodes.Call(function, [argument], [], None, None, lineno=at.lineno)


def _walked(node: nodes.Expr, hook: str = "hook_weighed") -> nodes.Expr:
    return node if isinstance(node, nodes.Const) else _call(hook, node, node)


def _cost(body: Sequence[nodes.Node]) -> int:
    """Units of one pass through a body, were all of it evaluated."""
    total = CALL
    for top in body:
        for node in (top, *top.find_all(nodes.Node)):
            total += NODE + (len(node.data) if isinstance(node, nodes.TemplateData) else 0)
    return total
