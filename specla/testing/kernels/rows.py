"""Norms, gates and rotation: kernels whose rows know nothing of each other."""

from __future__ import annotations

import numpy as np

from specla.backends.base import RotaryTable
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench


def some_shape(b: Bench) -> tuple[int, int, int]:
    """Rows, heads, width."""
    return b.pick(1, 2, 5), b.pick(1, 3, 4, 6), b.pick(1, 5, 32, 33, 64, 128)


def rotary_table(b: Bench, half: int, positions: int = 20) -> RotaryTable:
    """Angles of ``half`` pairs at any positions below ``positions``."""
    angle = b.rng.uniform(0, 7, (positions, half))
    return RotaryTable(
        b.input("cos", np.cos(angle).astype(np.float32)),
        b.input("sin", np.sin(angle).astype(np.float32)),
    )


@kernel_cases.add("rms_norm")
def rms_norm(b: Bench) -> None:
    n, h, d = some_shape(b)
    weight = b.floats("weight", d)
    b.backend.rms_norm(b.strided("x", n, h, d), weight, 1e-6, b.result("out", n, h, d))
    b.backend.rms_norm(b.strided("rows", n, d), weight, 1e-5, b.result("out of rows", n, d))
    d = b.pick(200, 1100, 2100, 5120)
    b.backend.rms_norm(
        b.strided("wide", 2, d), b.floats("its weight", d), 1e-6, b.result("out of wide", 2, d)
    )


@kernel_cases.add("gated_rms_norm")
def gated_rms_norm(b: Bench) -> None:
    n, h, d = some_shape(b)
    x, gate, weight = b.floats("x", n, h, d), b.floats("gate", n, h, d), b.floats("weight", d)
    b.backend.gated_rms_norm(x, gate, weight, 1e-6, b.result("out", n, h, d))


@kernel_cases.add("l2_norm")
def l2_norm(b: Bench) -> None:
    n, h, d = some_shape(b)
    scale = b.pick(1.0, d**-0.5)
    b.backend.l2_norm(b.strided("x", n, h, d), 1e-6, scale, b.result("out", n, h, d))


@kernel_cases.add("rotary")
def rotary(b: Bench) -> None:
    n, h, d = some_shape(b)
    half = max(1, b.pick(d // 2, d // 8))
    table = rotary_table(b, half)
    position = b.input("position", b.rng.integers(0, 20, n).astype(np.int32))
    b.backend.rotary(b.changing("x", b.values(n, h, max(d, 2 * half))), position, table)


@kernel_cases.add("swiglu")
def swiglu(b: Bench) -> None:
    n, _, d = some_shape(b)
    b.backend.swiglu(b.floats("gate", n, d), b.floats("up", n, d), b.result("out", n, d))


@kernel_cases.add("sigmoid_gate")
def sigmoid_gate(b: Bench) -> None:
    n, h, d = some_shape(b)
    x, gate = b.floats("x", n, h, d), b.strided("gate", n, h, d)
    b.backend.sigmoid_gate(x, gate, b.result("out", n, h, d))


@kernel_cases.add("add")
def add(b: Bench) -> None:
    n, _, d = some_shape(b)
    y = b.floats("y", n, d)
    b.backend.add(b.floats("x", n, d), y, b.result("out", n, d))
    x = b.changing("x, in place", b.values(n, d))
    b.backend.add(x, y, x)


@kernel_cases.add("gdn_gates")
def gdn_gates(b: Bench) -> None:
    n, h, _ = some_shape(b)
    alpha, beta = b.floats("alpha", n, h), b.floats("beta", n, h)
    a, dt_bias = b.floats("a", h), b.floats("dt_bias", h)
    decay, rate = b.result("decay", n, h), b.result("beta out", n, h)
    b.backend.gdn_gates(alpha, beta, a, dt_bias, decay, rate)
