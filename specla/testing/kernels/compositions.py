"""Kernels in one call: whatever a backend fuses must be what the reference does one by one."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.base import RotaryTable, Weight
from specla.backends.compositions import Operand
from specla.testing.arrays import filled
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.attention import LAYER, some_plan, some_pool
from specla.testing.kernels.bench import Bench
from specla.testing.kernels.products import FLOATS, float_source, random_source
from specla.testing.kernels.recurrence import random_forest
from specla.testing.kernels.rows import rotary_table, some_shape

SMALL, LARGE = ("Q8_0", "Q4_0"), ("Q4_K", "Q5_K", "Q6_K")


def _room(b: Bench, *shape: int) -> Any:
    """What a kernel may write or leave alone."""
    return b.backend.upload(filled(*shape))


def _out(b: Bench, n: int, cols: int) -> Operand:
    """An operand that nobody has written, for floats, for blocks, or for both."""

    def room(_name: str, n: int, *shape: int, dtype: str = "float32") -> Any:
        return b.backend.upload(filled(n, *shape, dtype=dtype))

    exact, blocks = b.pick((True, False), (False, True), (True, True))
    quantised = b.backend.quantised_rows(n, cols, room) if blocks else None
    return Operand(_room(b, n, cols), quantised, exact)


def _compare(b: Bench, operand: Operand) -> None:
    """All that a reader of the operand may look at."""
    if operand.exact:
        b.host("floats", b.backend.download(operand.floats))
    if operand.quantised is not None:
        for part in ("values", "scale", "sums"):
            b.host(part, b.backend.download(getattr(operand.quantised, part)))


@kernel_cases.add("rms_norm_operand")
def rms_norm_operand(b: Bench) -> None:
    n, cols = b.pick(1, 2, 5), b.pick(1, 5, 32, 33, 200, 512, 1100, 2100, 5120, 9000)
    out = _out(b, n, cols)
    b.backend.rms_norm_operand(b.strided("x", n, cols), b.floats("weight", cols), 1e-6, out)
    _compare(b, out)


@kernel_cases.add("gated_rms_norm_operand")
def gated_rms_norm_operand(b: Bench) -> None:
    n, h, d = some_shape(b)
    x, gate, weight = b.floats("x", n, h, d), b.floats("gate", n, h, d), b.floats("weight", d)
    out = _out(b, n, h * d)
    b.backend.gated_rms_norm_operand(x, gate, weight, 1e-6, out)
    _compare(b, out)


@kernel_cases.add("sigmoid_gate_operand")
def sigmoid_gate_operand(b: Bench) -> None:
    n, h, d = some_shape(b)
    x, gate, out = b.floats("x", n, h, d), b.strided("gate", n, h, d), _out(b, n, h * d)
    b.backend.sigmoid_gate_operand(x, gate, out)
    _compare(b, out)


def _weights(b: Bench, rows: list[int]) -> list[Weight]:
    """Matrices of any kinds that share their number of columns."""
    kinds, cols = b.pick(
        ((*LARGE, *SMALL, *FLOATS), 256 * b.pick(1, 3)),
        (LARGE, 256),
        ((*SMALL, *FLOATS), 32 * b.pick(1, 8, 17)),
        (FLOATS, b.pick(5, 32, 100)),
    )
    sources = []
    for count in rows:
        kind = b.pick(*kinds)
        if kind in FLOATS:
            sources.append(float_source(kind, b.values(count, cols)))
        else:
            block = 256 if kind in LARGE else 32
            sources.append(random_source(b.rng, kind, count, cols // block, b.mood))
    return [b.backend.load(source) for source in sources]


def _operand(b: Bench, n: int, weights: list[Weight]) -> Operand:
    """What the matrices take."""
    x, quantised = b.floats("x", n, weights[0].source.cols), None
    if any(weight.quantised for weight in weights):
        quantised = b.backend.quantised_rows(n, weights[0].source.cols)
        b.backend.quantise(x, quantised)
    return Operand(x, quantised, True)


@kernel_cases.add("linear_group")
def linear_group(b: Bench) -> None:
    rows = [b.pick(1, 16, 33, 70) for _ in range(b.pick(1, 2, 3, 4, 5))]
    n, weights = b.pick(1, 2, 7), _weights(b, rows)
    outs = [b.result(f"out {i}", n, count) for i, count in enumerate(rows)]
    b.backend.linear_group(_operand(b, n, weights), tuple(weights), tuple(outs))


@kernel_cases.add("linear_add")
def linear_add(b: Bench) -> None:
    n, rows = b.pick(1, 2, 7), b.pick(1, 33, 70)
    (weight,) = _weights(b, [rows])
    x, out = _operand(b, n, [weight]), b.changing("out", b.values(n, rows))
    b.backend.linear_add(x, weight, _room(b, n, rows), out)


@kernel_cases.add("linear_swiglu")
def linear_swiglu(b: Bench) -> None:
    n, rows = b.pick(1, 2, 7), b.pick(5, 32, 70)
    gate, up = _weights(b, [rows, rows])
    x, out = _operand(b, n, [gate, up]), _out(b, n, rows)
    rooms = _room(b, n, rows), _room(b, n, rows)
    b.backend.linear_swiglu(x, (gate, up), rooms, out)
    _compare(b, out)


@kernel_cases.add("gdn_inputs")
def gdn_inputs(b: Bench) -> None:
    n, h, d = some_shape(b)
    q, k, value_heads = b.strided("q", n, h, d), b.strided("k", n, h, d), h * b.pick(1, 2, 3)
    alpha, beta = b.floats("alpha", n, value_heads), b.floats("beta", n, value_heads)
    gates = (alpha, beta, b.floats("a", value_heads), b.floats("dt_bias", value_heads))
    normed = b.result("q out", n, h, d), b.result("k out", n, h, d)
    rates = b.result("decay", n, value_heads), b.result("beta out", n, value_heads)
    b.backend.gdn_inputs(q, k, 1e-6, d**-0.5, *gates, *normed, *rates)


def _head(b: Bench, dim: int) -> tuple[Any, RotaryTable]:
    """A norm's weight and a table that turns some of the head."""
    half = max(1, b.pick(dim // 2, dim // 8))
    return b.floats("weight", dim), rotary_table(b, half, 200)


@kernel_cases.add("rms_norm_rotary")
def rms_norm_rotary(b: Bench) -> None:
    n, h, _ = some_shape(b)
    d = b.pick(5, 32, 33, 64, 128, 256)
    weight, table = _head(b, d)
    position = b.input("position", b.rng.integers(0, 200, n).astype(np.int32))
    x, out = b.strided("x", n, h, d), b.result("out", n, h, d)
    b.backend.rms_norm_rotary(x, weight, 1e-6, position, table, out)


@kernel_cases.add("kv_append")
def kv_append(b: Bench) -> None:
    forest = random_forest(b, 9)
    slots = len(forest.trees) + 1
    pool, plan = some_pool(b, slots), some_plan(b, forest, slots)
    size = (plan.n_rows, pool.shape.heads, pool.shape.head_dim)
    weight, table = _head(b, pool.shape.head_dim)
    k, v = b.strided("k", *size), b.floats("v", *size)
    b.backend.kv_append(k, weight, 1e-6, table, v, pool, LAYER, plan, _room(b, *size))
