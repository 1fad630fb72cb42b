"""Scratch memory of kernels lives as long as its address is in use."""

from __future__ import annotations

import ast
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


def unkept(tree: ast.AST) -> list[str]:
    """Arrays that a function makes and takes the address of, but doesn't keep until its end."""
    found = []
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef) or _makes_functions(function):
            continue
        made, addressed, kept = set(), set(), set()
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and _called(node.value) in ("np.empty", "np.zeros"):
                made |= {ast.unparse(target) for target in node.targets}
            if _called(node) == "address":
                addressed.add(ast.unparse(node.args[0]))
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
    other = np.zeros(n)
    use(at, address(other))
    keep(other)
"""
    assert unkept(ast.parse(forgotten)) == ["kernel: memory"]
