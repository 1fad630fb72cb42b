"""Rules for the source text of the GPU kernels, read without importing torch or triton.

The contract (docs/arithmetic.md) fixes the order of every float sum and the rounding of every
operation. Names are allowed one by one: a new one is judged once, here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

LAUNCHER = "launch"
"""The module that launches kernels."""

DTYPES = {
    *("float16", "float32", "bfloat16", "int1", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "constexpr"),
}
ALLOWED = DTYPES | {
    # places and loops
    *("program_id", "num_programs", "arange", "range", "static_range", "cdiv"),
    *("multiple_of", "max_contiguous", "max_constancy", "assume", "static_assert"),
    *("debug_barrier", "load", "store", "cast"),
    # shapes
    *("zeros", "full", "reshape", "view", "permute", "trans", "split", "join", "interleave"),
    *("expand_dims", "broadcast_to", "gather"),
    # exact in any order: choices and integers; floor and ceil don't round
    *("where", "max", "min", "maximum", "minimum", "abs", "floor", "ceil", "umulhi"),
    # exact where a rule below says so
    *("sum", "dot"),
}
OWN = {
    # correctly rounded, for the elementary functions to build on
    "elementary": {"math", "math.div_rn", "math.sqrt_rn", "div_rn", "sqrt_rn"},
    # of two values, which have one order
    "sums": {"reduce"},
}
"""What only the module of this name may use."""
METHODS = {
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sigmoid", "softmax", "cos", "sin", "erf"),
    *("sum", "cumsum", "cumprod", "reduce", "associative_scan", "fma"),
}
"""What a tensor's methods must not compute."""

Sources = Mapping[str, ast.Module]


def parsed(sources: Mapping[str, str]) -> Sources:
    """Source texts by the name of their module."""
    return {name: ast.parse(text) for name, text in sources.items()}


def kernels_of(module: ast.Module) -> list[ast.FunctionDef]:
    """Functions that Triton compiles."""
    functions = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
    return [f for f in functions if any(_is_jit(d) for d in f.decorator_list)]


def names_of_kernels(sources: Sources) -> frozenset[str]:
    """All functions that Triton compiles."""
    return frozenset(f.name for module in sources.values() for f in kernels_of(module))


def violations(sources: Sources, others: frozenset[str] = frozenset()) -> list[str]:
    """Every breach of a rule, as "module:line: what", in order.

    others: kernels of modules that are not among the sources.
    """
    kernels = names_of_kernels(sources) | others
    found: list[tuple[str, int, str]] = []
    for name, module in sources.items():
        for line, what in _launches(name, module, kernels):
            found.append((name, line, what))
        for line, what in _foreign(module):
            found.append((name, line, what))
        for kernel in kernels_of(module):
            for line, what in _arithmetic(name, kernel):
                found.append((name, line, what))
    return [f"{name}:{line}: {what}" for name, line, what in sorted(set(found))]


def _launches(name: str, module: ast.Module, kernels: frozenset[str]) -> Iterator[tuple[int, str]]:
    """One place launches: the only call of a subscript in the launcher."""
    launched = 0
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
            launched += 1
            if name != LAUNCHER and not _is_type(node.func.value):
                yield node.lineno, f"a launch past launch(): {ast.unparse(node.func)}"
        if isinstance(node, ast.Subscript) and _last(node.value) in kernels:
            yield node.lineno, f"a kernel with a grid past launch(): {ast.unparse(node)}"
        if isinstance(node, ast.Attribute) and _last(node.value) in kernels:
            yield node.lineno, f"a kernel is only passed to launch(): {ast.unparse(node)}"
    if name == LAUNCHER:
        if launched != 1:
            yield 1, f"the launcher launches in {launched} places, not in one"
        if "{'enable_fp_fusion': False}" not in ast.unparse(module):
            yield 1, "the launcher doesn't switch fusion off"


def _foreign(module: ast.Module) -> Iterator[tuple[int, str]]:
    """Device libraries, whose functions are approximate, by any way in."""
    for node in ast.walk(module):
        name = ""
        if isinstance(node, ast.ImportFrom):
            name = f"{node.module}." + ",".join(alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            name = ",".join(alias.name for alias in node.names)
        elif isinstance(node, ast.Attribute):
            name = node.attr
        if "libdevice" in name or name == "inline_asm_elementwise":
            yield node.lineno, f"a foreign function: {name}"


def _arithmetic(name: str, kernel: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    allowed = ALLOWED | OWN.get(name, set())
    whole = {id(call.func.value) for call in ast.walk(kernel) if _casts_to_integer(call)}
    for node in ast.walk(kernel):
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.Div):
            yield node.lineno, "a division that isn't div()"
        if isinstance(node, (ast.BinOp, ast.AugAssign)) and isinstance(node.op, ast.MatMult):
            yield node.lineno, "a product of matrices whose sums have no order"
        if isinstance(node, ast.Attribute):
            used = _of_triton(node)
            if used is not None and used not in allowed:
                yield node.lineno, f"not among the exact functions: tl.{used}"
            elif used is None and node.attr in METHODS and not _of_triton_module(node):
                yield node.lineno, f"not among the exact functions: .{node.attr}"
        if isinstance(node, ast.Call):
            used = _of_triton(node.func)
            if used == "sum" and id(node) not in whole:
                yield node.lineno, "a sum over an axis that isn't of integers: .to(tl.int..) it"
            if used == "dot" and not _integer(node):
                yield node.lineno, "a dot that isn't of integers: out_dtype=tl.int32"


def _of_triton(node: ast.AST) -> str | None:
    """``math.div_rn`` of ``tl.math.div_rn``; None for an attribute of anything else."""
    first, _, rest = _dotted(node).partition(".")
    return rest if first == "tl" and rest else None


def _of_triton_module(node: ast.Attribute) -> bool:
    return _dotted(node).split(".")[0] in ("tl", "triton")


def _dotted(node: ast.AST) -> str:
    """``a.b.c`` of an expression of names only, else ""."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def _casts_to_integer(node: ast.AST) -> bool:
    """``(...).to(tl.int16)``"""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
        and len(node.args) == 1
        and _dotted(node.args[0]).startswith("tl.int")
    )


def _integer(dot: ast.Call) -> bool:
    given = {keyword.arg: _dotted(keyword.value) for keyword in dot.keywords}
    return given.get("out_dtype") == "tl.int32"


def _is_jit(decorator: ast.AST) -> bool:
    """``@triton.jit``, and with options."""
    return _last(decorator.func if isinstance(decorator, ast.Call) else decorator) == "jit"


def _last(node: ast.AST) -> str | None:
    """The name that an expression ends with."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def _is_type(node: ast.AST) -> bool:
    """``dict[str, int](...)``: no kernel."""
    name = _last(node)
    return name is not None and name in ("dict", "list", "tuple", "set", "frozenset")
