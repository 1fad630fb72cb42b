"""exp, sigmoid, silu, softplus, log and rsqrt from the one source text, as LLVM code.

The text is executed with objects that write LLVM instructions for each of its operations, all of
them 32 bits wide and without branches. So a plain loop over contiguous rows that calls one of
these functions is vectorised (Numba's own integers are 64 bits wide, which made LLVM refuse), and
``emit`` writes the same operations for whole vectors.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils as _cgutils
from numba.core import types
from numba.extending import intrinsic

from specla.core.elementary_source import FUNCTIONS, run_source

cgutils: Any = _cgutils

_F32, _I32 = ir.FloatType(), ir.IntType(32)


class Value:
    """A float32, int32 or truth value, or a vector of them, in code that is being written."""

    def __init__(self, builder: Any, value: Any) -> None:
        self.builder, self.value = builder, value

    @property
    def _element(self) -> Any:
        kind = self.value.type
        return kind.element if isinstance(kind, ir.VectorType) else kind

    def like(self, other: Any, element: Any) -> Any:
        """``other``, a value or a Python number, as an operand beside this value."""
        if isinstance(other, Value):
            return other.value
        kind = self.value.type
        if isinstance(kind, ir.VectorType):
            return ir.Constant(ir.VectorType(element, kind.count), [other] * kind.count)
        return ir.Constant(element, other)

    def _operate(self, name: str, other: Any, reverse: bool = False) -> Value:
        one, two = self.value, self.like(other, self._element)
        if reverse:
            one, two = two, one
        prefix = "f" if self._element == _F32 and name in ("add", "sub", "mul") else ""
        return Value(self.builder, getattr(self.builder, prefix + name)(one, two))

    def _compare(self, sign: str, other: Any) -> Value:
        two = self.like(other, self._element)
        return Value(self.builder, self.builder.fcmp_ordered(sign, self.value, two))

    def __add__(self, other: Any) -> Value:
        return self._operate("add", other)

    def __sub__(self, other: Any) -> Value:
        return self._operate("sub", other)

    def __rsub__(self, other: Any) -> Value:
        return self._operate("sub", other, reverse=True)

    def __mul__(self, other: Any) -> Value:
        return self._operate("mul", other)

    def __rshift__(self, other: Any) -> Value:
        return self._operate("ashr", other)

    def __lshift__(self, other: Any) -> Value:
        return self._operate("shl", other)

    def __and__(self, other: Any) -> Value:
        return self._operate("and_", other)

    def __or__(self, other: Any) -> Value:
        return self._operate("or_", other)

    def __lt__(self, other: Any) -> Value:
        return self._compare("<", other)

    def __gt__(self, other: Any) -> Value:
        return self._compare(">", other)

    def __eq__(self, other: Any) -> Any:
        return self._compare("==", other)

    __hash__ = None  # type: ignore[assignment]

    def cast(self, how: str, element: Any) -> Value:
        kind = self.value.type
        if isinstance(kind, ir.VectorType):
            element = ir.VectorType(element, kind.count)
        return Value(self.builder, getattr(self.builder, how)(self.value, element))


def _same(function: Any) -> Any:
    return function


def _where(condition: Value, yes: Any, no: Any) -> Value:
    one, two = (condition.like(x, _F32) for x in (yes, no))
    return Value(condition.builder, condition.builder.select(condition.value, one, two))


def _divide(x: Any, y: Value) -> Value:
    return Value(y.builder, y.builder.fdiv(y.like(x, _F32), y.value))


def _square_root(x: Value) -> Value:
    kind = x.value.type
    name = f"v{kind.count}f32" if isinstance(kind, ir.VectorType) else "f32"
    root = cgutils.get_or_insert_function(
        x.builder.module, ir.FunctionType(kind, [kind]), f"llvm.sqrt.{name}"
    )
    return Value(x.builder, x.builder.call(root, [x.value]))


functions: dict[str, Any] = run_source(
    {
        "jit": _same,
        "where": _where,
        "bits": lambda x: x.cast("bitcast", _I32),
        "frombits": lambda i: i.cast("bitcast", _F32),
        "itof": lambda i: i.cast("sitofp", _F32),
        "div": _divide,
        "sqrt": _square_root,
    },
    float,
    int,
    "llvm",
)


def emit(name: str, builder: Any, x: Any) -> Any:
    """Write the code of a function; x: an LLVM float, or a vector of floats."""
    return functions[name](Value(builder, x)).value


def _scalar(name: str) -> Any:
    def declare(typing_context: Any, x: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return emit(name, builder, arguments[0])

        return types.float32(types.float32), generate

    declare.__name__ = declare.__qualname__ = name
    declare.__doc__ = f"{name} of one float32 (core/elementary_source.py)."
    return intrinsic(declare)


_scalars = {name: _scalar(name) for name in FUNCTIONS}
exp: Any = _scalars["exp"]
sigmoid: Any = _scalars["sigmoid"]
silu: Any = _scalars["silu"]
softplus: Any = _scalars["softplus"]
log: Any = _scalars["log"]
rsqrt: Any = _scalars["rsqrt"]
