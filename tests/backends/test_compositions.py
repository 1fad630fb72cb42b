"""Compositions: by default the kernels one after another, whoever calls; fused where a backend
says so. That fused ones write the same bytes is checked by the kit's cases."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.chosen import CPU_BACKENDS

from specla.backends import create_backend
from specla.backends.base import Backend, RotaryTable
from specla.backends.compositions import COMPOSITIONS, Compositions, Operand
from specla.fuzz.failing import KERNELS, FailingBackend, InjectedError
from specla.fuzz.tiny import source, tiny_target
from specla.models.workspace import Workspace

ROWS, COLS = 3, 64


class Spy:
    """Delegates, and notes the kernels and compositions that are called."""

    def __init__(self, inner: Backend) -> None:
        self.inner = inner
        self.called: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name in COMPOSITIONS:
            return getattr(Compositions, name).__get__(self)
        attribute = getattr(self.inner, name)
        if name not in KERNELS:
            return attribute

        def call(*arguments: Any) -> None:
            self.called.append(name)
            attribute(*arguments)

        return call


def floats(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def weight(backend: Any, kind: str, rows: int = COLS) -> Any:
    return backend.load(source("w", floats(rows, COLS), kind))


@pytest.mark.parametrize("name", CPU_BACKENDS)
def test_by_default_the_kernels_one_after_another(name: str) -> None:
    spy: Any = Spy(create_backend(name, threads=1))
    space = Workspace(spy, ROWS)
    x, ones, narrow = floats(ROWS, COLS), np.ones(COLS, np.float32), np.ones(32, np.float32)
    small, exact = weight(spy, "Q8_0"), weight(spy, "F32", 5)
    operand = space.operand("normed", ROWS, COLS, (small, exact))
    spy.rms_norm_operand(x, ones, 1e-6, operand)
    space.products(operand, (small, exact, small), ("a", "b", "c"))
    hidden = space.operand("hidden", ROWS, COLS, (small,))
    rooms = space.rows("gate", ROWS, COLS), space.rows("up", ROWS, COLS)
    spy.linear_swiglu(operand, (small, small), rooms, hidden)
    spy.linear_add(hidden, small, space.rows("room", ROWS, COLS), x)
    heads = x.reshape(ROWS, 2, 32)
    spy.gated_rms_norm_operand(heads, heads, narrow, 1e-6, hidden)
    spy.sigmoid_gate_operand(heads, heads, space.operand("gated", ROWS, COLS, (exact,)))
    table = RotaryTable(floats(4, 8), floats(4, 8))
    spy.rms_norm_rotary(heads, narrow, 1e-6, np.arange(3, dtype=np.int32), table, heads.copy())
    assert spy.called == [
        *("rms_norm", "quantise"),
        *("linear_quantised", "linear_float", "linear_quantised"),
        *("linear_quantised", "linear_quantised", "swiglu", "quantise"),
        *("linear_quantised", "add"),
        *("gated_rms_norm", "quantise"),
        "sigmoid_gate",
        *("rms_norm", "rotary"),
    ]


@pytest.mark.parametrize("name", CPU_BACKENDS)
def test_an_operand_has_what_its_products_take(name: str) -> None:
    backend = create_backend(name, threads=1)
    space = Workspace(backend, ROWS)
    small, exact = weight(backend, "Q8_0"), weight(backend, "F32")
    for weights, quantised, floating in (
        ((small,), True, False),
        ((exact,), False, True),
        ((exact, small), True, True),
    ):
        operand = space.operand("normed", ROWS, COLS, weights)
        assert (operand.quantised is not None, operand.exact) == (quantised, floating)
        assert operand.floats.shape == (ROWS, COLS)
    x = floats(ROWS, COLS)
    given = space.quantised(x, (small,))
    assert given.floats is x and given.exact and given.quantised is not None
    # of the same width, but another operand: one is read while the other is written
    other = space.operand("hidden", ROWS, COLS, (small,))
    first = space.operand("normed", ROWS, COLS, (small,))
    assert first.quantised is not None and other.quantised is not None
    assert not np.shares_memory(first.quantised.values, other.quantised.values)


@pytest.mark.parametrize("name", CPU_BACKENDS)
def test_products_are_those_of_the_kernels(name: str) -> None:
    backend = create_backend(name, threads=1)
    space = Workspace(backend, ROWS)
    x, small, exact = floats(ROWS, COLS), weight(backend, "Q8_0"), weight(backend, "F32")
    quantised, wanted = backend.quantised_rows(ROWS, COLS), floats(2, ROWS, COLS)
    backend.quantise(x, quantised)
    backend.linear_quantised(quantised, small, wanted[0])
    backend.linear_float(x, exact, wanted[1])
    found = space.project(x, (small, exact), ("a", "b"))
    assert [out.tobytes() for out in found] == [out.tobytes() for out in wanted]
    residual = floats(ROWS, COLS, seed=1)
    expected = (residual + wanted[0]).tobytes()
    operand = Operand(x, quantised, True)
    backend.linear_add(operand, small, space.rows("room", ROWS, COLS), residual)
    assert residual.tobytes() == expected


def test_a_kernel_within_a_composition_can_fail() -> None:
    backend: Any = FailingBackend(create_backend("numpy"))
    target = tiny_target(backend, kind="Q8_0")
    sequence = target.open()
    backend.arm(0, "before", ("quantise",))
    with pytest.raises(InjectedError, match="before quantise"):
        target.prefill([(sequence, [1, 2])])


def test_every_composition_is_a_method_of_the_protocol() -> None:
    assert len(COMPOSITIONS) == 9
    assert all(getattr(Backend, name) is getattr(Compositions, name) for name in COMPOSITIONS)
