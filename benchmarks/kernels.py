"""Weight products of the compiled CPU backend: bytes checked first, then time per call.

    python benchmarks/kernels.py [--level avx2] [--threads 1] [--rows 3584] [--cols 1024]

Weights are cycled over more memory than the caches hold, as in decoding. GB/s are bytes of the
file's encoding per second for one token, GOP/s two operations per weight and token for the most.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

from specla.backends.base import Backend, QuantisedRows, Weight
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.weights import WeightSource

TOKENS = (1, 2, 4, 8, 16, 22)
KINDS = ("Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "BF16", "F32")
BEYOND_CACHES = 150_000_000


def random_source(rng: np.random.Generator, kind: str, rows: int, cols: int) -> WeightSource:
    """A matrix with scales of ordinary size."""
    size, size_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    values = (rng.standard_normal((rows, cols)) / 32).astype(np.float32)
    if kind == "F32":
        data = values.view(np.uint8)
    elif kind == "BF16":
        data = (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    else:
        blocks = rng.integers(0, 256, (rows, cols // size, size_bytes), dtype=np.uint8)
        at = {"Q6_K": (208,), "Q4_K": (0, 2), "Q5_K": (0, 2)}.get(kind, (0,))
        for start in at:
            blocks[:, :, start : start + 2] = np.array([0.01], np.float16).view(np.uint8)
        data = blocks
    return WeightSource("w", kind, rows, cols, data.reshape(rows, -1))


def product(backend: Backend, weight: Weight, x: np.ndarray) -> Callable[[Weight], np.ndarray]:
    """The call to measure, its inputs made beforehand."""
    out = np.empty((len(x), weight.source.rows), dtype=np.float32)
    blocks = weight.source.cols // 32
    rows = QuantisedRows(
        np.empty((len(x), 32 * blocks), np.int8), np.empty((len(x), blocks), np.float32)
    )
    backend.quantise(x, rows)

    def run(matrix: Weight) -> np.ndarray:
        if matrix.quantised:
            backend.linear_quantised(rows, matrix, out)
        else:
            backend.linear_float(x, matrix, out)
        return out

    return run


def measure(run: Callable[[Weight], np.ndarray], copies: list[Weight], repeats: int) -> float:
    """Median seconds of one product."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for weight in copies:
            run(weight)
        times.append((time.perf_counter() - start) / len(copies))
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--level")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rows", type=int, default=3584)
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    compiled, reference = NumbaBackend(options.level, options.threads), NumpyBackend()
    print(f"level {compiled.level}, {compiled.threads} threads, W [{options.rows}, {options.cols}]")
    rng = np.random.default_rng(0)
    for kind in KINDS:
        source = random_source(rng, kind, options.rows, options.cols)
        x = rng.standard_normal((max(TOKENS), source.cols)).astype(np.float32)
        first = compiled.load(source)
        wanted = product(reference, first, x[:5])(reference.load(source))
        same = product(compiled, first, x[:5])(first).tobytes() == wanted.tobytes()
        copies = [first]
        while sum(weight.handle.nbytes for weight in copies) < BEYOND_CACHES:
            copies.append(compiled.load(source))
        times = [measure(product(compiled, first, x[:n]), copies, options.repeats) for n in TOKENS]
        ratios = " ".join(f"{n}: {t / times[0]:.2f}" for n, t in zip(TOKENS, times, strict=True))
        speed = source.data.nbytes / times[0] / 1e9
        work = 2 * max(TOKENS) * source.rows * source.cols / times[-1] / 1e9
        print(
            f"{kind:5} bytes {'equal' if same else 'DIFFER'}; {times[0] * 1e3:.3f} ms for one "
            f"token, {speed:.1f} GB/s, {work:.0f} GOP/s; cost over one token: {ratios}"
        )


if __name__ == "__main__":
    main()
