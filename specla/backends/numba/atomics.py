"""What walking threads need of the processor, for compiled code: shared words (addresses are int64,
orders sequential), waiting, the float control register, and the call of a kernel by its address.
"""

from __future__ import annotations

import os
import platform
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

_I32, _I64 = ir.IntType(32), ir.IntType(64)
_ORDER = "seq_cst"
FLOAT_DEFAULT = 0x1F80 if platform.machine() in ("x86_64", "AMD64") else 0
"""Float control with subnormals kept, round to nearest even, no traps."""
_declare: Any = cgutils.get_or_insert_function
_alloca: Any = cgutils.alloca_once


def _word(builder: Any, address: Any) -> Any:
    return builder.inttoptr(address, _I64.as_pointer())


def _fetch(typing_context: Any, address: Any) -> Any:
    """The word at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.load_atomic(_word(builder, arguments[0]), _ORDER, 8)

    return types.int64(types.int64), generate


def _put(typing_context: Any, address: Any, value: Any) -> Any:
    """Set the word at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        builder.store_atomic(arguments[1], _word(builder, arguments[0]), _ORDER, 8)
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), generate


def _add(typing_context: Any, address: Any, value: Any) -> Any:
    """Add to the word at an address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.atomic_rmw("add", _word(builder, arguments[0]), arguments[1], _ORDER)

    return types.int64(types.int64, types.int64), generate


def _exchange(typing_context: Any, address: Any, old: Any, new: Any) -> Any:
    """Replace ``old`` by ``new``; False if something else was there."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        at, old, new = arguments
        pair = builder.cmpxchg(_word(builder, at), old, new, _ORDER, _ORDER)
        return builder.extract_value(pair, 1)

    return types.boolean(types.int64, types.int64, types.int64), generate


def _pause(typing_context: Any) -> Any:
    """Tell the processor that this is a waiting loop."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        machine = platform.machine()
        if machine in ("x86_64", "AMD64"):
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(_declare(builder.module, kind, "llvm.x86.sse2.pause"), [])
        elif machine in ("aarch64", "arm64"):
            kind = ir.FunctionType(ir.VoidType(), [_I32])
            hint = _declare(builder.module, kind, "llvm.aarch64.hint")
            builder.call(hint, [ir.Constant(_I32, 1)])
        return context.get_dummy_value()

    return types.void(), generate


def _yield_processor(typing_context: Any) -> Any:
    """Let another thread of the machine run."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        name = "SwitchToThread" if os.name == "nt" else "sched_yield"
        function = _declare(builder.module, ir.FunctionType(_I32, []), name)
        builder.call(function, [])
        return context.get_dummy_value()

    return types.void(), generate


def _enter(typing_context: Any, entry: Any, block: Any, first: Any, last: Any) -> Any:
    """Call a kernel's entry (jit.py) by its address."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = ir.FunctionType(_I32, [_I64, _I64, _I64])
        return builder.call(builder.inttoptr(arguments[0], kind.as_pointer()), arguments[1:])

    return types.int32(types.int64, types.int64, types.int64, types.int64), generate


def _set_float_control(typing_context: Any, control: Any) -> Any:
    """Give this thread's float control register a value; returns the one before. Any other than
    the default may flush subnormals to zero or round another way."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        machine = platform.machine()
        if machine in ("x86_64", "AMD64"):
            return _x86_control(builder, arguments[0])
        if machine in ("aarch64", "arm64"):
            word = ir.FunctionType(_I64, [])
            before = builder.call(_declare(builder.module, word, "llvm.aarch64.get.fpcr"), [])
            kind = ir.FunctionType(ir.VoidType(), [_I64])
            builder.call(_declare(builder.module, kind, "llvm.aarch64.set.fpcr"), arguments)
            return before
        return arguments[0]

    return types.int64(types.int64), generate


def _x86_control(builder: Any, control: Any) -> Any:
    word = _alloca(builder, _I32)
    pointer = builder.bitcast(word, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [ir.IntType(8).as_pointer()])
    builder.call(_declare(builder.module, kind, "llvm.x86.sse.stmxcsr"), [pointer])
    before = builder.zext(builder.load(word), _I64)
    builder.store(builder.trunc(control, _I32), word)
    builder.call(_declare(builder.module, kind, "llvm.x86.sse.ldmxcsr"), [pointer])
    return before


set_float_control: Any = intrinsic(_set_float_control)
fetch: Any = intrinsic(_fetch)
put: Any = intrinsic(_put)
add: Any = intrinsic(_add)
exchange: Any = intrinsic(_exchange)
pause: Any = intrinsic(_pause)
yield_processor: Any = intrinsic(_yield_processor)
enter: Any = intrinsic(_enter)
