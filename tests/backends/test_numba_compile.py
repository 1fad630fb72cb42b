"""Compilation: kernels told apart, features of the processor, and warming up."""

from __future__ import annotations

import json
import subprocess
import sys

import numba
import numpy as np
import pytest
from numba.core import types
from support.arrays import equal

from specla.backends.numba import jit, primitives, warmup
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.features import LEVELS, supported
from specla.backends.numba.panels import KINDS
from specla.backends.numba.products import product


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
    count = backend.prepare(["Q8_0", "F32", "Q5_0"], lambda *progress: told.append(progress))
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
    NumbaBackend(level="portable").prepare(["Q8_0"])
    assert [kernel._compiled for kernel in others] == compiled
    assert product(KINDS["Q8_0"], "portable")._compiled is not None


def test_both_processes_of_a_warm_up_have_the_same_list() -> None:
    """They compile from its two ends, so each must meet what the other has done."""
    arguments = ("portable", ["Q8_0", "Q6_K"], ["f16"])
    script = (
        "from specla.backends.numba import warmup\n"
        "warmup._tasks = lambda kernels: print([k.name for k in kernels]) or []\n"
        "warmup.assist()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(arguments)],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = [kernel.name for kernel in warmup._kernels(*arguments)]
    assert done.stdout.strip() == str(ours)
    assert len(ours) > 20 and len(set(ours)) == len(ours)


def test_a_helper_that_fails_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "usable_cpus", lambda: 2)
    monkeypatch.setattr(warmup, "WORTH_HELP", 0)
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert warmup.warm_up("portable", ["Q8_0"], caches=["f16"]) > 20
