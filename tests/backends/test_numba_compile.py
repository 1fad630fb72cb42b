"""Compilation: features, the on-disk cache, and what happens without one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from numba.core import types
from numba.core.ccallback import CFunc
from support.arrays import equal

from specla.backends.numba import jit, primitives
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.features import LEVELS, supported
from specla.backends.numba.panels import KINDS
from specla.backends.numba.products import product

SCRIPT = """
import numpy as np
from specla.backends.numba import elementwise
from specla.backends.numba.backend import NumbaBackend
x = np.ones((1, 4), dtype=np.float32)
out = np.empty_like(x)
NumbaBackend(threads=1).add(x, x, out)
assert (out == 2).all()
print(elementwise.add._compiled.cache_hits)
"""


def _hits(cache: Path) -> int:
    """Cache hits of a fresh process that calls one kernel."""
    environment = os.environ | {"NUMBA_CACHE_DIR": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.slow
def test_second_process_reads_the_cache(tmp_path: Path) -> None:
    assert _hits(tmp_path) == 0
    assert _hits(tmp_path) == 1


def test_works_without_any_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Numba says RuntimeError when no folder is writable."""

    def refuse(compiled: CFunc) -> None:
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(CFunc, "enable_caching", refuse)

    def double(x: np.ndarray) -> None:
        x[0] *= 2

    x = np.array([21])
    jit.Kernel(double, "void(int64[::1])")(x)
    assert x[0] == 42


def _times(factor: int) -> jit.Kernel:
    def multiply(out: np.ndarray) -> None:
        out[0] = factor

    return jit.Kernel(multiply, "void(float32[::1])")


def test_kernels_of_one_function_are_told_apart() -> None:
    """All entries have one signature, so a cache may take one for the other."""

    def first(x: np.ndarray, out: np.ndarray) -> None:
        out[0] = x[0]

    for dtype in (np.uint16, np.float32):
        kernel = jit.Kernel(first, f"void({np.dtype(dtype).name}[::1], float32[::1])")
        out = np.empty(1, np.float32)
        kernel(np.array([7], dtype), out)
        assert out[0] == 7
    for factor in (2, 3):
        out = np.empty(1, np.float32)
        _times(factor)(out)
        assert out[0] == factor


def test_cached_code_depends_on_every_source(monkeypatch: pytest.MonkeyPatch) -> None:
    stamps = []
    for digest in ("one", "other"):
        monkeypatch.setattr(jit, "_sources", lambda digest=digest: digest)
        dispatcher = numba.njit(primitives.narrow.py_func)
        dispatcher.enable_caching()
        jit._stamp(dispatcher)
        stamps.append(dispatcher._cache._cache_file._source_stamp)
    assert stamps[0] != stamps[1]


def test_portable_level_is_always_there() -> None:
    assert supported("portable") and LEVELS[0] == "portable"


@pytest.mark.parametrize("native", [True, False])
def test_every_float16_widens_exactly(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor's instruction, where it has one, and without."""
    if not native:
        monkeypatch.setattr(primitives, "has", lambda feature: False)

    def widen_all(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(x.shape[0]):
            out[i] = primitives.widen(x[i])

    compiled = numba.njit(types.void(types.uint16[::1], types.float32[::1]))(widen_all)
    halves = np.arange(1 << 16, dtype=np.uint16)
    out = np.empty(1 << 16, dtype=np.float32)
    compiled(halves, out)
    assert equal(out, halves.view(np.float16).astype(np.float32))


@pytest.mark.slow
def test_warm_up_compiles_everything_a_decode_needs() -> None:
    backend, told = NumbaBackend(), []
    count = backend.warm_up(["Q8_0", "F32", "Q5_0"], lambda *progress: told.append(progress))
    assert [done for done, _, _ in told] == list(range(count))
    assert {total for _, total, _ in told} == {count}
    assert all(kernel._compiled is not None for kernel in jit.declared())
    names = {name for _, _, name in told}
    assert {"rms_norm", "gdn_verify", "conv_prefill", "argmax", "_fill"} <= names
    assert any(name.startswith("multiply") for name in names)


def test_warm_up_leaves_other_levels_alone() -> None:
    """Their products may not compile here: LLVM then aborts the whole process."""
    others = [product(KINDS["Q8_0"], level) for level in LEVELS if not supported(level)]
    compiled = [kernel._compiled for kernel in others]
    NumbaBackend(level="portable").warm_up(["Q8_0"])
    assert [kernel._compiled for kernel in others] == compiled
    assert product(KINDS["Q8_0"], "portable")._compiled is not None
