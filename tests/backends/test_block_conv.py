"""The convolution of a DFlash2 block: against its definition, and all backends alike."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba_values import moods, seeds, values
from support.arrays import equal, filled

from specla.backends.numba.backend import NumbaBackend
from specla.backends.numpy.backend import NumpyBackend

REFERENCE, COMPILED = NumpyBackend(), NumbaBackend()


@settings(max_examples=60)
@given(
    n=st.integers(1, 9),
    taps=st.integers(1, 5),
    groups=st.integers(1, 6),
    size=st.sampled_from([1, 3, 8, 16]),
    side=st.integers(0, 1),
    mood=moods,
    seed=seeds,
)
def test_backends_agree(
    n: int, taps: int, groups: int, size: int, side: int, mood: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = values(rng, mood, n, groups * size)
    dynamic = values(rng, mood, n, 2 * taps * groups)
    base = values(rng, mood, 2, taps, groups * size)
    found, wanted = filled(*x.shape), filled(*x.shape)
    COMPILED.block_conv(x, dynamic, base, side, found)
    REFERENCE.block_conv(x, dynamic, base, side, wanted)
    assert equal(found, wanted)
    # a block's first rows don't depend on the later ones
    part = filled(*x[:2].shape)
    COMPILED.block_conv(x[:2], dynamic[:2], base, side, part)
    assert equal(part, found[:2])


def test_definition() -> None:
    rng = np.random.default_rng(0)
    n, taps, groups, size = 5, 3, 2, 4
    x, base = rng.standard_normal((n, 8)), rng.standard_normal((2, taps, 8))
    dynamic = rng.standard_normal((n, 2, taps, groups))
    wanted = np.zeros((n, 8))
    for row in range(n):
        for tap in range(min(taps, row + 1)):
            weight = np.repeat(dynamic[row, 1, tap], size) + base[1, tap]
            wanted[row] += x[row - tap] * weight
    out = filled(n, 8)
    flat = dynamic.reshape(n, -1).astype(np.float32)
    REFERENCE.block_conv(x.astype(np.float32), flat, base.astype(np.float32), 1, out)
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-5)
