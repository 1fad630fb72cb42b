"""Kernels of the compiled CPU backend: bytes checked first, then time per call.

    python benchmarks/kernels.py [--level avx2] [--threads 1] [--rows 3584] [--cols 1024]
    python benchmarks/kernels.py --only others [--shape 0.8b]

First what the machine can do (machine_limits.py). Then weight products: weights are cycled over
more memory than the caches hold, as in decoding. GB/s are bytes of the file's encoding per second
for one token, GOP/s two operations per weight and token for the most. Then the other kernels at a
model's shape (kernel_cases.py), through the backend protocol, the Python side of a call included;
GB/s are the bytes that must be read and written at least. A kernel whose bytes differ from the
NumPy reference's prints no time.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
from harness import Neighbours, Table, add_backend_options, argument_parser, machine_line
from harness import numba_backend as compiled_backend
from kernel_cases import Maker
from kernel_inputs import Case
from machine_limits import STREAMS, copy_bandwidth, instruction_peaks, read_bandwidth
from random_blocks import random_blocks
from shapes import SHAPES

from specla.backends.base import Backend, Weight
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.weights import WeightSource

TOKENS = (1, 2, 4, 8, 16, 22)
ROWS = (1, 8, 22)
KINDS = ("Q8_0", "Q4_0", "Q4_K", "Q5_K", "Q6_K", "BF16", "F16", "F32")
BEYOND_CACHES = 150_000_000


def random_source(rng: np.random.Generator, kind: str, rows: int, cols: int) -> WeightSource:
    """A matrix with scales of ordinary size."""
    data = random_blocks(rng, kind, rows * cols, cols**-0.5)
    return WeightSource("w", kind, rows, cols, data.reshape(rows, -1))


def product(backend: Backend, weight: Weight, x: np.ndarray) -> Callable[[Weight], np.ndarray]:
    """The call to measure, its inputs made beforehand."""
    out = np.empty((len(x), weight.source.rows), dtype=np.float32)
    rows = backend.quantised_rows(*x.shape)
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


def print_limits(threads: int) -> None:
    """The machine's own figures, to hold the others against."""
    one, many = read_bandwidth(threads, 1), read_bandwidth(threads, STREAMS)
    peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in instruction_peaks(threads).items())
    print(
        f"memory with {threads} threads, GB/s: read {one:.1f}, read in {STREAMS} streams "
        f"{many:.1f}, copy {copy_bandwidth(threads):.1f}; peaks, GOP/s: {peaks or 'not measured'}\n"
    )


def print_products(compiled: Backend, args: argparse.Namespace) -> bool:
    """A row for each kind of weights; whether all bytes are the reference's."""
    reference, rng, all_same = NumpyBackend(), np.random.default_rng(0), True
    print(f"products, W [{args.rows}, {args.cols}]")
    over = [f"n = {n}" for n in TOKENS[1:]]
    table = Table("kind", "bytes", "n = 1, ms", "GB/s", f"n = {max(TOKENS)}, GOP/s", *over)
    for kind in KINDS:
        source = random_source(rng, kind, args.rows, args.cols)
        x = rng.standard_normal((max(TOKENS), source.cols)).astype(np.float32)
        first = compiled.load(source)
        wanted = product(reference, first, x[:5])(reference.load(source))
        if product(compiled, first, x[:5])(first).tobytes() != wanted.tobytes():
            all_same = False
            table.row(kind, "DIFFER", *[""] * (3 + len(over)))
            continue
        copies = [first]
        while sum(weight.handle.nbytes for weight in copies) < BEYOND_CACHES:
            copies.append(compiled.load(source))
        times = [measure(product(compiled, first, x[:n]), copies, args.repeats) for n in TOKENS]
        speed = source.data.nbytes / times[0] / 1e9
        work = 2 * max(TOKENS) * source.rows * source.cols / times[-1] / 1e9
        ratios = [f"{t / times[0]:.2f} x" for t in times[1:]]
        table.row(kind, "equal", times[0] * 1e3, speed, work, *ratios)
    print()
    return all_same


def same_results(ours: Case, reference: Case) -> bool:
    """Whether one call of each leaves the same bytes."""
    ours.run()
    reference.run()
    pairs = zip(ours.results(), reference.results(), strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


def seconds_of(case: Case, repeats: int) -> float:
    """Median seconds of a call, in batches of about two milliseconds."""
    start = time.perf_counter()
    case.run()
    count = max(1, min(1000, int(0.002 / (time.perf_counter() - start))))
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        for _ in range(count):
            case.run()
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)


def print_others(compiled: Backend, args: argparse.Namespace) -> bool:
    """A row for each kernel; whether all bytes are the reference's."""
    shape, all_same = SHAPES[args.shape], True
    measured: dict[str, list[tuple[Case, float]]] = {}
    for n in ROWS:
        ours = Maker(compiled, shape, n).cases()
        reference = Maker(NumpyBackend(), shape, n).cases()
        for case, other in zip(ours, reference, strict=True):
            same = same_results(case, other)
            all_same = all_same and same
            seconds = seconds_of(case, args.repeats) if same else float("nan")
            measured.setdefault(case.name, []).append((case, seconds))
    print(f"other kernels at the {args.shape} shape; ns per element and GB/s: n = {ROWS[-1]}")
    columns = [f"n = {n}, us" for n in ROWS]
    table = Table("kernel", "bytes", *columns, "ns/element", f"GB/s at n = {ROWS[0]}", "GB/s")
    for name, series in measured.items():
        equal = all(seconds == seconds for _, seconds in series)
        (first, quick), (last, slow) = series[0], series[-1]
        table.row(
            name,
            "equal" if equal else "DIFFER",
            *(seconds * 1e6 for _, seconds in series),
            slow / last.elements * 1e9,
            first.n_bytes / quick / 1e9,
            last.n_bytes / slow / 1e9,
        )
    return all_same


def main() -> int:
    parser = argument_parser(__doc__)
    add_backend_options(parser)
    parser.add_argument("--only", choices=("products", "others"))
    parser.add_argument("--rows", type=int, default=3584)
    parser.add_argument("--cols", type=int, default=1024)
    parser.add_argument("--shape", choices=SHAPES, default="0.8b")
    parser.add_argument("--repeats", type=int, default=7)
    args = parser.parse_args()
    compiled = compiled_backend(args)
    print(machine_line(compiled))
    print_limits(compiled.threads)
    neighbours = Neighbours()
    parts = {"products": print_products, "others": print_others}
    same = [part(compiled, args) for name, part in parts.items() if args.only in (None, name)]
    print(f"\n{neighbours.line()}")
    return 0 if all(same) else 1


if __name__ == "__main__":
    sys.exit(main())
