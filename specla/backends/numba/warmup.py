"""Compile ahead: fill the on-disk cache, so that later runs start at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from specla.backends.numba import embed, jit, walker
from specla.backends.numba.panels import F32, FLOAT_KINDS, KINDS
from specla.backends.numba.products import product


def warm_up(
    level: str,
    kinds: Iterable[str] | None = None,
    report: Callable[[int, int, str], None] | None = None,
) -> int:
    """Compile every kernel for a CPU level, and what walks them. Returns how many there are.

    kinds: GGML types of the matrices that will be loaded, or None for all. report: told (kernels
    done, kernels in all, name of the next) before each.
    """
    names = [*KINDS, *FLOAT_KINDS] if kinds is None else kinds
    codes = sorted({KINDS.get(name, FLOAT_KINDS.get(name, F32)) for name in names})
    # products of this level only: code for another may not even compile on this processor
    kernels = [*jit.declared(), *(product(code, level) for code in codes)]
    kernels += [embed.embedding(embed.COMPILED[name]) for name in names if name in embed.COMPILED]
    tasks = [(kernel.name, kernel.compile) for kernel in kernels]
    tasks += [("walker", walker.lead), ("walker", walker.help_out)]
    for i, (name, compile_it) in enumerate(tasks):
        if report is not None:
            report(i, len(tasks), name)
        compile_it()
    return len(tasks)
