"""Arrays: making, filling, copying and viewing them."""

from __future__ import annotations

import numpy as np

from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench

DTYPES = ("float32", "float16", "int32", "int16", "int8")


def _numbers(b: Bench, dtype: str, *shape: int) -> np.ndarray:
    return b.rng.integers(-100, 100, shape).astype(dtype)


@kernel_cases.add("empty")
def empty(b: Bench) -> None:
    dtype, shape = b.pick(*DTYPES), (b.pick(1, 3), b.pick(0, 5))
    array = b.backend.empty(shape, dtype)
    b.changing("written after", _numbers(b, dtype, *shape), into=array)


@kernel_cases.add("zeros")
def zeros(b: Bench) -> None:
    shape = (b.pick(1, 3), b.pick(0, 5), 2)
    b.host("zeros", b.backend.download(b.backend.zeros(shape, b.pick(*DTYPES))))


@kernel_cases.add("upload")
def upload(b: Bench) -> None:
    dtype = b.pick(*DTYPES)
    room = b.changing("room", _numbers(b, dtype, 7, 3))
    host = _numbers(b, dtype, b.pick(1, 4, 7), 3)
    b.backend.upload(host, into=room)
    fresh = b.backend.upload(host)
    host[...] = 0  # it was read when upload returned
    b.host("fresh", b.backend.download(fresh))


@kernel_cases.add("download")
def download(b: Bench) -> None:
    array = b.input("array", _numbers(b, b.pick(*DTYPES), 3, 5))
    copy = b.backend.download(array)
    b.host("copy", copy.copy())
    copy[...] = 0  # a copy: the input must not follow


@kernel_cases.add("download_all")
def download_all(b: Bench) -> None:
    arrays = [_numbers(b, b.pick(*DTYPES), 3, width) for width in (1, 5, 2)]
    views = [b.backend.view(b.input(f"array {i}", each), 1) for i, each in enumerate(arrays)]
    for i, copy in enumerate(b.backend.download_all(*views)):
        b.host(f"copy {i}", copy.copy())
        copy[...] = 0


@kernel_cases.add("clear")
def clear(b: Bench) -> None:
    array = b.changing("array", _numbers(b, b.pick(*DTYPES), 4, 3, 2))
    b.backend.clear(array, b.pick(..., 1, (2, slice(1, 3)), slice(0, 2)))


@kernel_cases.add("poison")
def poison(b: Bench) -> None:
    array = b.changing("array", _numbers(b, b.pick(*DTYPES), 4, 3, 2))
    b.backend.poison(array, b.pick(..., 1, (2, slice(1, 3)), slice(0, 2)))


@kernel_cases.add("copy")
def copy(b: Bench) -> None:
    dtype = b.pick(*DTYPES)
    target, source = b.changing("target", _numbers(b, dtype, 4, 5, 2)), _numbers(b, dtype, 3, 5, 2)
    rows = (slice(1, 3), slice(0, 2))
    b.backend.copy(
        target, *b.pick((2, b.input("source", source), 1), (rows, b.input("s", source), rows))
    )


@kernel_cases.add("views")
def views(b: Bench) -> None:
    """view, rows, row, columns and heads share the memory of the array."""
    backend, array = b.backend, b.changing("array", _numbers(b, "float32", 6, 8))
    for name, part in (
        ("view", backend.view(array, (slice(1, 3), slice(None)))),
        ("rows", backend.rows(array, 4)),
        ("row", backend.row(array, 5)),
        ("columns", backend.columns(array, 2, 7)),
        ("heads", backend.heads(array, 4)),
    ):
        b.host(name, backend.download(part))
    backend.clear(backend.row(array, 2))
