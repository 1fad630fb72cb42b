"""Negative controls: wrong arithmetic that the emulator must tell from right arithmetic."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ptx.needs import need_compiler

need_compiler()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from support.changed_kernels import changed_backend  # noqa: E402

from ptx.cases import triton_backend  # noqa: E402
from ptx.run import EmulatedLauncher, emulated, run  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.numpy.sums import halving_tree  # noqa: E402
from specla.backends.triton.launch import EXACT  # noqa: E402
from specla.backends.triton.sums import halves  # noqa: E402
from specla.testing.errors import ConformanceError  # noqa: E402
from specla.testing.kernels import kernel_cases  # noqa: E402
from specla.testing.kernels.bench import compare  # noqa: E402

pytestmark = pytest.mark.triton

FUSED = {"enable_fp_fusion": True}


@triton.jit
def _multiply_add(a, b, c, out, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    tl.store(out + i, tl.load(a + i) * tl.load(b + i) + tl.load(c + i))


@triton.jit
def _sums(x, out, LOG: tl.constexpr, ROWS: tl.constexpr, WHOLE: tl.constexpr):  # type: ignore[no-untyped-def]
    row, column = tl.arange(0, ROWS), tl.arange(0, 2**LOG)
    v = tl.load(x + row[:, None] * 2**LOG + column[None, :])
    if WHOLE:
        tl.store(out + row, tl.sum(v, 1))
    else:
        tl.store(out + row, halves(v, LOG, ROWS))


@triton.jit
def _conv(x, w, out, n, FIRST: tl.constexpr, SECOND: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, N)
    here = i < n
    t = tl.load(x + i + 2, here, 0.0) * tl.load(w + 2)
    t += tl.load(x + i + FIRST, here, 0.0) * tl.load(w + FIRST)
    t += tl.load(x + i + SECOND, here, 0.0) * tl.load(w + SECOND)
    tl.store(out + i, t, here)


def _values(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def _call(
    kernel: Any, arguments: list[Any], meta: dict[str, Any], warps: int = 4, **options: Any
) -> None:
    run(kernel, (1,), arguments, meta, options={"num_warps": warps, **EXACT, **options})


@pytest.mark.parametrize("warps", [1, 4])
def test_fusion_is_seen(warps: int) -> None:
    a, b, c = (_values(256, seed=seed) for seed in range(3))
    c -= a * b  # cancels: what the product lost shows
    exact, fused = np.empty_like(a), np.empty_like(a)
    _call(_multiply_add, [a, b, c, exact], {"N": 256}, warps)
    _call(_multiply_add, [a, b, c, fused], {"N": 256}, warps, **FUSED)
    assert exact.tobytes() == (a * b + c).tobytes()
    assert fused.tobytes() != exact.tobytes()


@pytest.mark.parametrize("warps", [1, 2, 4])
def test_order_of_a_sum_is_seen(warps: int) -> None:
    x = _values(16, 128)
    tree, whole = np.empty(16, np.float32), np.empty(16, np.float32)
    _call(_sums, [x, tree], {"LOG": 7, "ROWS": 16, "WHOLE": False}, warps)
    _call(_sums, [x, whole], {"LOG": 7, "ROWS": 16, "WHOLE": True}, warps)
    assert tree.tobytes() == halving_tree(x).tobytes()
    assert whole.tobytes() != tree.tobytes()
    assert np.allclose(whole, tree, rtol=1e-4, atol=1e-5)


def test_order_of_taps_is_seen() -> None:
    x, w, n = _values(200), _values(3, seed=1), 190
    found, swapped = np.empty(n, np.float32), np.empty(n, np.float32)
    _call(_conv, [x, w, found, n], {"FIRST": 1, "SECOND": 0, "N": 256})
    _call(_conv, [x, w, swapped, n], {"FIRST": 0, "SECOND": 1, "N": 256})
    wanted = (x[2 : n + 2] * w[2] + x[1 : n + 1] * w[1]) + x[:n] * w[0]
    assert found.tobytes() == wanted.tobytes()
    assert swapped.tobytes() != wanted.tobytes()


@pytest.mark.parametrize(
    "name", ["rotary", "rms_norm", "gdn_verify", "fold_state", "conv_verify", "linear_quantised"]
)
def test_kernels_launched_with_fusion_fail(name: str) -> None:
    """The comparison of test_kernels.py has the power to see what it is there to see."""
    # one warp: several values per thread, whose squares can be fused with their sum
    _must_differ(name, triton_backend(), EmulatedLauncher(options=FUSED, warps=1))


WHOLE = "tl.sum(x, 0)"
SWAPPED_TAPS = """term = tl.where(inside, near, far) * tap
        if (age == 1) & (WIDTH > 2):
            held = term
        elif age == 2:
            total = (total + term) + held
        else:
            total = total + term
"""
MUTANTS = {
    "whole sum over keys": (
        *("gdn_verify", "gdn", "DeltaRule"),
        *("halves_of_rows(x, LOG, BV)", WHOLE),
    ),
    "fold in the other order": (
        *("fold_state", "gdn", "DeltaRule"),
        *("at = entry + i\n", "at = entry + count - 1 - i\n"),
    ),
    "pending factors folded in the other order": (
        *("gdn_verify", "gdn", "DeltaRule"),
        *("at = entry + i\n", "at = entry + count - 1 - i\n"),
    ),
    "swapped taps": (
        *("conv_verify", "conv", "Convolution"),
        *("total = total + tl.where(inside, near, far) * tap\n", SWAPPED_TAPS),
    ),
    "blocks of keys from the last on": (
        *("attention", "attention", "Attention"),
        *("at = line * blocks + block\n", "at = line * blocks + seen - 1 - block\n"),
    ),
    "whole sum over weights": (
        *("attention", "attention", "Attention"),
        *(
            "halves(tl.reshape(p, [1, BLOCK]), LOG_BLOCK, 1)",
            "tl.sum(tl.reshape(p, [1, BLOCK]), 1)",
        ),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_changed_kernels_fail(mutant: str, tmp_path: Path) -> None:
    name, *change = MUTANTS[mutant]
    _must_differ(name, changed_backend(tmp_path, *change), EmulatedLauncher())


def test_a_harmless_change_passes(tmp_path: Path) -> None:
    """It is not for having been changed that the others fail."""
    backend = changed_backend(tmp_path, "gdn", "DeltaRule", "at = entry + i\n", "at = i + entry\n")
    with emulated(EmulatedLauncher()):
        compare("fold_state", kernel_cases.cases["fold_state"], backend, NumpyBackend(), 2)


def _must_differ(name: str, backend: Any, launcher: EmulatedLauncher) -> None:
    with emulated(launcher), pytest.raises(ConformanceError, match="the reference's bytes"):
        compare(name, kernel_cases.cases[name], backend, NumpyBackend(), 10)
