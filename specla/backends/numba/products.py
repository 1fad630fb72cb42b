"""Weight products: activations prepared once, then panel after panel over tiles of tokens."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from specla.backends.base import QuantisedRows, Weight
from specla.backends.numba.dot import method, words_per_quad
from specla.backends.numba.features import LEVELS
from specla.backends.numba.jit import Kernel, device, routine
from specla.backends.numba.panel_code import SEGMENTS, correction_factors, panel
from specla.backends.numba.panels import F32, KINDS, LARGEST, Panels, pack
from specla.backends.numba.primitives import contiguous
from specla.backends.numba.tile_code import address
from specla.backends.weights import WeightSource

Launch = Callable[..., None]
"""(kernel, units, *arguments, share=...), as NumbaBackend has it."""
SHARED_WORK = 1 << 20
"""Multiplications from which a product is cut over threads: waking one costs tens of us."""


def load(source: WeightSource) -> Weight:
    """See Backend.load."""
    return Weight(source, source.kind in KINDS, pack(source))


@routine
def _prepare(values: Any, scale: Any, factors: Any, x: Any, corrections: Any, x_scale: Any) -> None:
    """Activations as the dot wants them: x [N, blocks, 8 * words], and what to add to the sums.

    One word: four int8. Two words: columns 0 and 2 as int16, then 1 and 3.
    """
    a, b, c, d = factors
    two = x.shape[2] == 16
    for n in range(x.shape[0]):
        q = contiguous(values[n])
        for block in range(x.shape[1]):
            first = second = 0
            for i in range(16):
                first += q[32 * block + i]
                second += q[32 * block + 16 + i]
            corrections[n, block, 0] = a * first + b * second
            corrections[n, block, 1] = c * first + d * second
            x_scale[n, block] = scale[n, block]
            for j in range(8):
                at = 32 * block + 4 * j
                q0, q1 = np.int64(q[at]), np.int64(q[at + 1])
                q2, q3 = np.int64(q[at + 2]), np.int64(q[at + 3])
                if two:
                    x[n, block, 2 * j] = np.int32(q0 & 0xFFFF | q2 << 16)
                    x[n, block, 2 * j + 1] = np.int32(q1 & 0xFFFF | q3 << 16)
                else:
                    low = q0 & 0xFF | (q1 & 0xFF) << 8
                    x[n, block, j] = np.int32(low | (q2 & 0xFF) << 16 | q3 << 24)


@device
def _scatter(tile: Any, first: int, count: int, start: int, out: Any) -> None:
    """Columns start.. of out, as far as it has them, from tile [tokens, 16]."""
    width = min(16, out.shape[1] - start)
    for t in range(count):
        row = contiguous(out[first + t])
        for r in range(width):
            row[start + r] = tile[t, r]


_MATRIX = "uint8[:, ::1], uint8[:, ::1], uint8[:, ::1]"


@cache
def product(kind: int, level: str) -> Kernel:
    """The kernel for a kind at a CPU level: panels first..last of W times all tokens."""
    if kind >= F32:
        return _float_product(kind)
    return _integer_product(kind, LEVELS.index(level))


def _integer_product(kind: int, level: int) -> Kernel:
    words = 8 * words_per_quad(method(LEVELS[level], LARGEST[kind]))
    factors = correction_factors(kind)
    most = 8 if LEVELS[level] == "vnni" else 4  # as the registers allow

    def multiply(
        quants: Any,
        subs: Any,
        scales: Any,
        values: Any,
        scale: Any,
        out: Any,
        first: int,
        last: int,
    ) -> None:
        tokens, blocks = scale.shape
        x = np.empty((tokens, blocks, words), np.int32)
        corrections = np.empty((tokens, blocks, 2), np.int32)
        x_scale = np.empty((tokens, blocks), np.float32)
        _prepare(values, scale, factors, x, corrections, x_scale)
        run = (blocks + SEGMENTS - 1) // SEGMENTS
        tile = np.empty((8, 16), np.float32)
        to, at_w, at_sub, at_d = address(tile), address(quants), address(subs), address(scales)
        at_x, at_c, at_s = address(x), address(corrections), address(x_scale)
        for p in range(first, last):
            w, sub = at_w + p * quants.shape[1], at_sub + p * subs.shape[1]
            d = at_d + p * scales.shape[1]
            n = 0
            while n < tokens:
                ax, ac = at_x + 4 * words * blocks * n, at_c + 8 * blocks * n
                ad, left = at_s + 4 * blocks * n, tokens - n
                if left >= most:
                    panel(kind, level, most, w, sub, d, ax, ac, ad, to, blocks, run)
                    done = most
                elif left >= 4:
                    panel(kind, level, 4, w, sub, d, ax, ac, ad, to, blocks, run)
                    done = 4
                elif left >= 2:
                    panel(kind, level, 2, w, sub, d, ax, ac, ad, to, blocks, run)
                    done = 2
                else:
                    panel(kind, level, 1, w, sub, d, ax, ac, ad, to, blocks, run)
                    done = 1
                _scatter(tile, n, done, 16 * p, out)
                n += done

    signature = f"void({_MATRIX}, int8[:, :], float32[:, :], float32[:, :], intp, intp)"
    return Kernel(multiply, signature)


def _float_product(kind: int) -> Kernel:
    def multiply(
        quants: Any, subs: Any, scales: Any, values: Any, out: Any, first: int, last: int
    ) -> None:
        tokens, cols = values.shape
        blocks = (cols + 31) // 32
        x = np.zeros((tokens, 32 * blocks), np.float32)
        for n in range(tokens):
            row = contiguous(values[n])
            for i in range(cols):
                x[n, i] = row[i]
        run = (blocks + SEGMENTS - 1) // SEGMENTS
        tile = np.empty((8, 16), np.float32)
        to, at_w, at_x = address(tile), address(quants), address(x)
        for p in range(first, last):
            w, n = at_w + p * quants.shape[1], 0
            while n < tokens:
                ax, left = at_x + 128 * blocks * n, tokens - n
                if left >= 4:
                    panel(kind, 0, 4, w, 0, 0, ax, 0, 0, to, blocks, run)
                    done = 4
                elif left >= 2:
                    panel(kind, 0, 2, w, 0, 0, ax, 0, 0, to, blocks, run)
                    done = 2
                else:
                    panel(kind, 0, 1, w, 0, 0, ax, 0, 0, to, blocks, run)
                    done = 1
                _scatter(tile, n, done, 16 * p, out)
                n += done

    return Kernel(multiply, f"void({_MATRIX}, float32[:, :], float32[:, :], intp, intp)")


def linear_quantised(
    x: QuantisedRows, weight: Weight, out: Any, level: str, launch: Launch
) -> None:
    """See Backend.linear_quantised."""
    matrix: Panels = weight.handle
    multiply = product(matrix.kind, level)
    share = out.size * matrix.blocks * 32 >= SHARED_WORK
    launch(multiply, matrix.count, *matrix.bytes, x.values, x.scale, out, share=share)


def linear_float(x: Any, weight: Weight, out: Any, level: str, launch: Launch) -> None:
    """See Backend.linear_float."""
    matrix: Panels = weight.handle
    multiply = product(matrix.kind, level)
    share = out.size * matrix.blocks * 32 >= SHARED_WORK
    launch(multiply, matrix.count, *matrix.bytes, x, out, share=share)
