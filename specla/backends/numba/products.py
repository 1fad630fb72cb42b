"""Weight products: panel after panel over tiles of tokens."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from specla.backends.base import QuantisedRows, Weight
from specla.backends.numba import dot
from specla.backends.numba.arena import Arena
from specla.backends.numba.features import LEVELS
from specla.backends.numba.integer_weights import HIGH_BITS, RECORD_BYTES
from specla.backends.numba.jit import Kernel, Launch
from specla.backends.numba.panel import (
    RESULTS,
    float_panel,
    integer_panel,
    scatter,
    scratch,
)
from specla.backends.numba.panel_code import SEGMENTS
from specla.backends.numba.panels import F32, KINDS, LARGEST, Panels, pack
from specla.backends.numba.primitives import contiguous, keep
from specla.backends.numba.vector_code import address
from specla.backends.weights import WeightSource

SHARED_WORK = 1 << 16
"""Multiplications from which a product is cut over threads: waking one costs tens of us."""
TOKEN_BATCH = 64
"""Tokens whose activations should stay in a core's cache while all panels pass by."""


def load(source: WeightSource, launch: Launch, arena: Arena) -> Weight:
    """See Backend.load."""
    return Weight(source, source.kind in KINDS, pack(source, launch, arena))


@cache
def product(kind: int, level: str) -> Kernel:
    """The kernel for a kind at a CPU level: panels first..last of W times all tokens."""
    if kind >= F32:
        return _float_product(kind)
    return _integer_product(kind, LEVELS.index(level))


def uses_pairs(kind: int, level: str) -> bool:
    """Whether a kind's kernel takes the activations as int16."""
    return kind < F32 and dot.takes_pairs(dot.method(level, LARGEST[kind]))


def wants_pairs(level: str) -> bool:
    """Whether any kernel of a CPU level does."""
    return any(uses_pairs(kind, level) for kind in KINDS.values())


def _integer_product(kind: int, level: int) -> Kernel:
    pairs, recorded = uses_pairs(kind, LEVELS[level]), kind in HIGH_BITS
    size = 64 if pairs else 32
    most = 8 if LEVELS[level] == "vnni" else 4  # as the registers allow

    def multiply(
        quants: Any,
        subs: Any,
        scales: Any,
        x: Any,
        x_scale: Any,
        x_sums: Any,
        out: Any,
        first: int,
        last: int,
    ) -> None:
        tokens, blocks = x_scale.shape
        run, memory = (blocks + SEGMENTS - 1) // SEGMENTS, scratch()
        one_tile = tokens <= 4 or tokens == most
        step = 0 if one_tile or not recorded else RECORD_BYTES
        records = np.empty(RECORD_BYTES + step * (blocks - 1), np.uint8)
        at_r = address(records)
        for start in range(0, tokens, TOKEN_BATCH):
            stop = min(start + TOKEN_BATCH, tokens)
            for p in range(first, last):
                w = address(quants) + p * quants.shape[1]
                sub = address(subs) + p * subs.shape[1]
                d = address(scales) + p * scales.shape[1]
                n, new, whole = start, 1, 16 * p + 16 <= out.shape[1]
                while n < stop:
                    to, to_step, left = memory + RESULTS, 64, stop - n
                    if whole:
                        to_step = 4 * out.shape[1]
                        to = address(out) + to_step * n + 64 * p
                    ax, entry = address(x) + size * blocks * n, 4 * blocks * n
                    a, c = address(x_scale) + entry, address(x_sums) + entry
                    # fmt: off
                    if left >= most:
                        done = most
                        integer_panel(kind, level, most, w, sub, d, ax, a, c, at_r, step, new,
                                      memory, to, to_step, blocks, run)
                    elif left >= 4:
                        done = 4
                        integer_panel(kind, level, 4, w, sub, d, ax, a, c, at_r, step, new,
                                      memory, to, to_step, blocks, run)
                    elif left >= 2:
                        done = 2
                        integer_panel(kind, level, 2, w, sub, d, ax, a, c, at_r, step, new,
                                      memory, to, to_step, blocks, run)
                    else:
                        done = 1
                        integer_panel(kind, level, 1, w, sub, d, ax, a, c, at_r, step, new,
                                      memory, to, to_step, blocks, run)
                    # fmt: on
                    if not whole:
                        scatter(to, n, done, 16 * p, out)
                    n, new = n + done, 0
        keep(records)

    matrix = "uint8[:, ::1], uint8[:, ::1], uint8[:, ::1]"
    rows = f"int{16 if pairs else 8}[:, ::1], float32[:, ::1], int16[:, :, ::1]"
    return Kernel(multiply, f"void({matrix}, {rows}, float32[:, ::1], intp, intp)")


def _float_product(kind: int) -> Kernel:
    def multiply(quants: Any, x: Any, out: Any, first: int, last: int) -> None:
        tokens, cols = x.shape
        blocks = (cols + 31) // 32
        run, memory = (blocks + SEGMENTS - 1) // SEGMENTS, scratch()
        # only a row that ends within a block takes a copy
        padded = np.zeros((tokens if cols % 32 else 0, 32 * blocks), np.float32)
        for n in range(padded.shape[0]):
            row = contiguous(x[n])
            for i in range(cols):
                padded[n, i] = row[i]
        at_x, x_step = address(x), x.strides[0]
        if cols % 32:
            at_x, x_step = address(padded), 128 * blocks
        for start in range(0, tokens, TOKEN_BATCH):
            stop = min(start + TOKEN_BATCH, tokens)
            for p in range(first, last):
                w, whole = address(quants) + p * quants.shape[1], 16 * p + 16 <= out.shape[1]
                n, new = start, 1
                while n < stop:
                    to, to_step, left = memory + RESULTS, 64, stop - n
                    if whole:
                        to_step = 4 * out.shape[1]
                        to = address(out) + to_step * n + 64 * p
                    ax = at_x + x_step * n
                    if left >= 4:
                        done = 4
                        float_panel(kind, 4, w, ax, x_step, new, memory, to, to_step, blocks, run)
                    elif left >= 2:
                        done = 2
                        float_panel(kind, 2, w, ax, x_step, new, memory, to, to_step, blocks, run)
                    else:
                        done = 1
                        float_panel(kind, 1, w, ax, x_step, new, memory, to, to_step, blocks, run)
                    if not whole:
                        scatter(to, n, done, 16 * p, out)
                    n, new = n + done, 0
        keep(padded)

    return Kernel(multiply, "void(uint8[:, ::1], float32[:, :], float32[:, ::1], intp, intp)")


def linear_quantised(
    x: QuantisedRows, weight: Weight, out: Any, level: str, launch: Launch
) -> None:
    """See Backend.linear_quantised."""
    matrix: Panels = weight.handle
    multiply = product(matrix.kind, level)
    values = x.pairs if uses_pairs(matrix.kind, level) else x.values
    share = out.size * matrix.blocks * 32 >= SHARED_WORK
    arguments = (*matrix.bytes, values, x.scale, x.sums, out)
    launch(multiply, matrix.count, *arguments, share=share)


def linear_float(x: Any, weight: Weight, out: Any, level: str, launch: Launch) -> None:
    """See Backend.linear_float."""
    matrix: Panels = weight.handle
    multiply = product(matrix.kind, level)
    share = out.size * matrix.blocks * 32 >= SHARED_WORK
    launch(multiply, matrix.count, matrix.bytes[0], x, out, share=share)
