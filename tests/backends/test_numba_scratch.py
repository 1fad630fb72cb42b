"""Scratch memory of kernels lives as long as its address is in use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from specla.backends import numba as package

MODULES = sorted(Path(package.__file__).parent.glob("*.py"))


def _called(node: ast.AST) -> str:
    return ast.unparse(node.func) if isinstance(node, ast.Call) else ""


def _makes_functions(function: ast.FunctionDef) -> bool:
    return any(
        isinstance(node, ast.FunctionDef) for node in ast.walk(function) if node is not function
    )


def _made(node: ast.Assign) -> Iterator[str]:
    """Names of new arrays."""
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=True))
        for name, value in pairs:
            if _called(value) in ("np.empty", "np.zeros"):
                yield ast.unparse(name)


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Subscript):
        node = node.value
    return ast.unparse(node)


def unkept(tree: ast.AST) -> list[str]:
    """Arrays that a function makes and takes the address of, but doesn't keep until its end."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or _makes_functions(function):
            continue
        made, addressed, kept = set(), set(), set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign):
                made |= set(_made(node))
            if _called(node) == "address":
                addressed.add(_root(node.args[0]))
        for node in function.body:
            if isinstance(node, ast.Expr) and _called(node.value) == "keep":
                kept |= {ast.unparse(argument) for argument in node.value.args}
        found += [f"{function.name}: {name}" for name in sorted(made & addressed - kept)]
    return found


@pytest.mark.parametrize("module", MODULES, ids=lambda path: path.stem)
def test_scratch_outlives_its_address(module: Path) -> None:
    """Numba frees an array after its last mention, and knows nothing of addresses."""
    assert unkept(ast.parse(module.read_text())) == []


def test_the_check_sees_what_it_should() -> None:
    forgotten = """
def kernel(n):
    memory = np.empty(n)
    at = address(memory)
    other, more = np.zeros(n), np.zeros(n)
    use(at, address(other), address(more[1, 2:]))
    keep(other)
"""
    assert unkept(ast.parse(forgotten)) == ["kernel: memory", "kernel: more"]
