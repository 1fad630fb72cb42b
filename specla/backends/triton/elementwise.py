"""Kernels without a reduction: gates, activations, rotary position embedding."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.base import RotaryTable
from specla.backends.triton.elementary import exp, sigmoid, silu, softplus
from specla.backends.triton.launch import launch

BLOCK = 1024


@triton.jit
def _swiglu(gate, up, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < n
    g = tl.load(gate + at, here, 0.0)
    u = tl.load(up + at, here, 0.0)
    tl.store(out + at, silu(g) * u, here)


@triton.jit
def _sigmoid_gate(x, gate, out, n, width, row, head, dim, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < n
    # the gate may be columns of a wider array: rows and heads have strides of their own
    gate_at = at // width * row + at % width // dim * head + at % dim
    g = tl.load(gate + gate_at, here, 0.0)
    value = tl.load(x + at, here, 0.0)
    tl.store(out + at, value * sigmoid(g), here)


@triton.jit
def _add(x, y, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    here = at < n
    tl.store(out + at, tl.load(x + at, here, 0.0) + tl.load(y + at, here, 0.0), here)


@triton.jit
def gdn_gate(alpha, beta, a, dt_bias, decay_out, beta_out, at, head, here):
    """Gates of the entries ``at``, which belong to value heads ``head``."""
    rate = softplus(tl.load(alpha + at, here, 0.0) + tl.load(dt_bias + head, here, 0.0))
    tl.store(decay_out + at, exp(rate * tl.load(a + head, here, 0.0)), here)
    tl.store(beta_out + at, sigmoid(tl.load(beta + at, here, 0.0)), here)


@triton.jit
def _gdn_gates(alpha, beta, a, dt_bias, decay_out, beta_out, n, heads, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    gdn_gate(alpha, beta, a, dt_bias, decay_out, beta_out, at, at % heads, at < n)


@triton.jit
def _rotary(x, position, cos, sin, heads, dim, half, HALF: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, HALF)
    here = i < half
    at = tl.load(position + row) * half + i
    c = tl.load(cos + at, here, 0.0)
    s = tl.load(sin + at, here, 0.0)
    first = x + (row * heads + tl.program_id(1)) * dim + i
    a = tl.load(first, here, 0.0)
    b = tl.load(first + half, here, 0.0)
    tl.store(first, a * c - b * s, here)
    tl.store(first + half, b * c + a * s, here)


class Elementwise:
    """These kernels as methods of the protocol."""

    def swiglu(self, gate: Any, up: Any, out: Any) -> None:
        _over(_swiglu, out, gate, up, out, out.numel())

    def sigmoid_gate(self, x: Any, gate: Any, out: Any) -> None:
        row, head = gate.stride(0), gate.stride(1) if gate.dim() == 3 else 0
        width = x.numel() // x.shape[0]
        _over(_sigmoid_gate, out, x, gate, out, out.numel(), width, row, head, x.shape[-1])

    def add(self, x: Any, y: Any, out: Any) -> None:
        _over(_add, out, x, y, out, out.numel())

    def gdn_gates(
        self, alpha: Any, beta: Any, a: Any, dt_bias: Any, decay_out: Any, beta_out: Any
    ) -> None:
        arguments = (alpha, beta, a, dt_bias, decay_out, beta_out)
        _over(_gdn_gates, alpha, *arguments, alpha.numel(), alpha.shape[1])

    def rotary(self, x: Any, position: Any, table: RotaryTable) -> None:
        n, heads, dim = x.shape
        half = table.cos.shape[1]
        arguments = (x, position, table.cos, table.sin, heads, dim, half)
        launch(_rotary, (n, heads), *arguments, warps=1, HALF=triton.next_power_of_2(half))


def _over(kernel: Any, shaped: Any, *arguments: Any) -> None:
    """One program for each BLOCK values."""
    launch(kernel, (triton.cdiv(shaped.numel(), BLOCK),), *arguments, BLOCK=BLOCK)
