"""Weights: loading, embedding, quantised rows and products, for every type of matrix."""

from __future__ import annotations

from typing import Any

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from specla.backends.blocks import NATIVE
from specla.backends.weights import WeightSource
from specla.testing.arrays import filled
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench

SCALES_AT = {"Q8_0": [0], "Q4_0": [0], "Q5_0": [0], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
"""Bytes of a block at which a float16 scale begins."""
FLOATS = ("F32", "F16", "BF16")


def random_source(
    rng: np.random.Generator, kind: str, rows: int, blocks: int, mood: str
) -> WeightSource:
    """A quantised matrix of any bits. mood: scales are ordinary, or any float16 if hostile."""
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    data = rng.integers(0, 256, (rows, blocks, size_bytes), dtype=np.uint8)
    for at in SCALES_AT[kind]:
        if mood != "hostile":
            scale = rng.standard_normal((rows, blocks, 1)).astype(np.float16)
            data[:, :, at : at + 2] = scale.view(np.uint8)
    return WeightSource("w", kind, rows, size * blocks, data.reshape(rows, -1))


def float_source(kind: str, w: np.ndarray) -> WeightSource:
    """A float matrix in one of FLOATS, from float32."""
    data: np.ndarray = w
    if kind == "F16":
        with np.errstate(over="ignore"):
            data = w.astype(np.float16)
    elif kind == "BF16":
        data = (w.view(np.uint32) >> 16).astype(np.uint16)
    return WeightSource("w", kind, len(w), w.shape[1], data.view(np.uint8).reshape(len(w), -1))


def _source(b: Bench, kinds: tuple[str, ...]) -> WeightSource:
    kind, rows = b.pick(*kinds), b.pick(1, 16, 33, 50)
    if kind in FLOATS:
        return float_source(kind, b.values(rows, b.pick(1, 5, 32, 100, 256)))
    blocks = b.pick(1, 3) if "_K" in kind else b.pick(1, 2, 8, 17)
    return random_source(b.rng, kind, rows, blocks, b.mood)


@kernel_cases.add("load")
def load(b: Bench) -> None:
    source = _source(b, (*NATIVE, *FLOATS, "Q5_0"))
    b.host("quantised", np.array(b.backend.load(source).quantised))


@kernel_cases.add("embed")
def embed(b: Bench) -> None:
    source, n = _source(b, (*NATIVE, *FLOATS, "Q5_0")), b.pick(1, 2, 7)
    tokens = b.input("tokens", b.rng.integers(0, source.rows, n).astype(np.int32))
    b.backend.embed(tokens, b.backend.load(source), b.result("out", n, source.cols))


def _rows(b: Bench, x: Any, n: int, cols: int) -> Any:
    def room(name: str, n: int, *shape: int, dtype: str = "float32") -> Any:
        return b.backend.upload(filled(n, *shape, dtype=dtype))

    rows = b.backend.quantised_rows(n, cols, room)
    b.backend.quantise(x, rows)
    return rows


@kernel_cases.add("quantise")
def quantise(b: Bench) -> None:
    n, cols = b.pick(1, 2, 5), b.pick(1, 5, 31, 32, 33, 128, 200)
    rows = _rows(b, b.strided("x", n, cols), n, cols)
    for part in ("values", "scale", "sums"):
        b.host(part, b.backend.download(getattr(rows, part)))


@kernel_cases.add("linear_quantised")
def linear_quantised(b: Bench) -> None:
    source, n = _source(b, NATIVE), b.pick(1, 2, 7, 12)
    rows = _rows(b, b.floats("x", n, source.cols), n, source.cols)
    b.backend.linear_quantised(rows, b.backend.load(source), b.result("out", n, source.rows))


@kernel_cases.add("linear_float")
def linear_float(b: Bench) -> None:
    source, n = _source(b, (*FLOATS, "Q5_0")), b.pick(1, 2, 7)
    x = b.floats("x", n, source.cols)
    b.backend.linear_float(x, b.backend.load(source), b.result("out", n, source.rows))
