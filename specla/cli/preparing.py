"""Compiling a backend's kernels before they are needed, where a person can see it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from time import perf_counter
from types import ModuleType

from specla.backends.base import Backend
from specla.cli.progress import Reporter


@dataclass(frozen=True)
class Prepared:
    """kernels: how many are ready.  compiled: how many of them weren't before.  seconds: taken."""

    kernels: int
    compiled: int
    seconds: float


def prepare_backend(
    backend: Backend,
    kinds: Iterable[str] | None,
    show: Reporter,
    caches: Iterable[str] | None = None,
) -> Prepared:
    """Compile, or read from the disk, what matrices of these GGML types and KV caches of these
    types need (None: all types)."""
    if not backend.compiles:
        return Prepared(0, 0, 0.0)
    kept = code_cache(backend)
    before, start = kept.USE.compiled if kept else 0, perf_counter()
    with show.step(f"preparing the {backend.name} backend", "kernels") as advance:

        def told(done: int, total: int, name: str) -> None:
            advance(done, total, name.strip("_"))

        kernels = backend.prepare(kinds, told, caches)
    compiled = kept.USE.compiled - before if kept else kernels
    for line in kept.troubles() if kept else ():
        show.note(f"note: {line}")
    return Prepared(kernels, compiled, perf_counter() - start)


def code_cache(backend: Backend) -> ModuleType | None:
    """The module that keeps a backend's compiled code on disk, if it has one."""
    if backend.name != "numba":
        return None
    from specla.backends.numba import code_cache

    return code_cache
