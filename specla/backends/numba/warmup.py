"""Compile ahead: fill the cache on disk, so that later runs start at once.

Compiling takes most of a minute on one processor, so where there are two, a second process compiles
from the other end of the list. The cache is all that the two share: what one has written, the other
reads.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from specla.backends.numba import attention, cache, code_cache, copies, embed, jit, walker
from specla.backends.numba.panels import F32, FLOAT_KINDS, KINDS
from specla.backends.numba.products import product
from specla.backends.options import usable_cpus

WORTH_HELP = 8
"""Kernels to compile from which a second process is started: it takes seconds to get going."""

Task = tuple[str, Callable[[], object]]


def warm_up(
    level: str,
    kinds: Iterable[str] | None = None,
    report: Callable[[int, int, str], None] | None = None,
    caches: Iterable[str] | None = None,
) -> int:
    """Compile every kernel for a CPU level, and what walks them. Returns how many there are.

    kinds: GGML types of the matrices that will be loaded.  caches: types of the KV cache.  None is
    all.  report: told (kernels done, kernels in all, name of the next) before each.
    """
    kinds = [*KINDS, *FLOAT_KINDS] if kinds is None else sorted(kinds)
    caches = [*attention.attention] if caches is None else sorted(caches)
    kernels = _kernels(level, kinds, caches)
    tasks = _tasks(kernels)
    with _helper(level, kinds, caches, sum(not kernel.kept for kernel in kernels)):
        for i, (name, compile_it) in enumerate(tasks):
            if report is not None:
                report(i, len(tasks), name)
            compile_it()
    return len(tasks)


def _kernels(level: str, kinds: Iterable[str], caches: Iterable[str]) -> list[jit.Kernel]:
    by_cache = (attention.attention, cache.kv_write, copies.kv_move)
    unused = [k for table in by_cache for name, k in table.items() if name not in caches]
    codes = sorted({KINDS.get(name, FLOAT_KINDS.get(name, F32)) for name in kinds})
    found = [
        *(kernel for kernel in jit.declared() if kernel not in unused),
        # products of this level only: code for another may not even compile on this processor
        *(product(code, level) for code in codes),
        *(embed.embedding(embed.COMPILED[name]) for name in kinds if name in embed.COMPILED),
    ]
    # both processes must have the same order, and modules declare theirs as they are imported
    return sorted(found, key=lambda kernel: kernel.name)


def _tasks(kernels: list[jit.Kernel]) -> list[Task]:
    tasks: list[Task] = [(kernel.name, kernel.compile) for kernel in kernels]
    return [*tasks, ("walker", walker.lead), ("walker", walker.help_out)]


@contextmanager
def _helper(level: str, kinds: list[str], caches: list[str], missing: int) -> Iterator[None]:
    """A second process at work meanwhile, where that helps. It may fail: this one does it all."""
    alone = missing < WORTH_HELP or usable_cpus() < 2 or code_cache.folder() is None
    if alone or not sys.executable:
        yield
        return
    script = f"from {__name__} import assist; assist()"
    with subprocess.Popen(
        [sys.executable, "-c", script, json.dumps([level, kinds, caches])],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield
        finally:
            process.kill()


def assist() -> None:
    """The second process: the same kernels, from the last to the first."""
    # for what it imports: modules declare their kernels
    import specla.backends.numba.backend  # noqa: F401

    level, kinds, caches = json.loads(sys.argv[1])
    for _, compile_it in reversed(_tasks(_kernels(level, kinds, caches))):
        compile_it()
