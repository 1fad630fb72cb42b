"""Compiled elementary functions over hostile floats, bit for bit."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from ptx.needs import need_compiler

need_compiler()

import triton  # noqa: E402
import triton.language as tl  # noqa: E402

from ptx.run import run  # noqa: E402
from specla.backends.triton import elementary as compiled  # noqa: E402
from specla.backends.triton.launch import EXACT  # noqa: E402
from specla.core import elementary  # noqa: E402
from specla.core.elementary_source import FUNCTIONS  # noqa: E402
from specla.testing.arrays import equal  # noqa: E402

pytestmark = pytest.mark.triton

BLOCK = 512


@triton.jit
def _apply(x, out, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, FUNCTION(tl.load(x + at)))


@cache
def hostile() -> np.ndarray:
    """Every exponent with short, long and random mantissas, both signs; edges of all branches."""
    rng = np.random.default_rng(7)
    exponent = np.arange(256, dtype=np.uint32) << 23
    mantissa = np.array(
        [0, 1, 2, 0x3FFFFF, 0x400000, 0x7FFFFF, *rng.integers(0, 1 << 23, 26)], np.uint32
    )
    bits = (exponent[:, None] | mantissa).reshape(-1)
    ordinary = rng.uniform(-110, 110, 8192).astype(np.float32)
    edges = np.array(
        [-104, 89, 20, 0.7071068, 1, 2**-126, 88.72284, -87.33655, -103.972], np.float32
    )
    steps = np.arange(-20, 21, dtype=np.int32)
    near = (edges.view(np.int32)[:, None] + steps).reshape(-1).view(np.float32)
    values = bits.view(np.float32)
    x = np.concatenate([values, -values, ordinary, near])
    return np.concatenate([x, np.zeros(-len(x) % BLOCK, np.float32)])


def _compiled(name: str, **options: object) -> np.ndarray:
    x = hostile()
    out = np.empty_like(x)
    meta = {"FUNCTION": getattr(compiled, name), "BLOCK": BLOCK}
    run(_apply, (len(x) // BLOCK,), [x, out], meta, options={**EXACT, **options})
    return out


@pytest.mark.parametrize("warps", [1, 4])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_same_bits(name: str, warps: int) -> None:
    assert equal(_compiled(name, num_warps=warps), getattr(elementary, name)(hostile()))


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "rsqrt"])
def test_fusion_is_seen(name: str) -> None:
    """Of all six only rsqrt has no product inside a sum."""
    fused = _compiled(name, num_warps=4, enable_fp_fusion=True)
    assert not equal(fused, getattr(elementary, name)(hostile()))
