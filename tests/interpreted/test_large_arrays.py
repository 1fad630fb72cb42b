"""Arrays of more floats than an int32 counts: factor banks, and segments of many rows.

Their memory is asked for but, all except a few pages, never touched.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.arrays import equal

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

import torch  # noqa: E402

from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.pools import KvShape, RecurrentPool, RecurrentShape  # noqa: E402
from specla.backends.triton import endings, segments  # noqa: E402
from specla.backends.triton.attention import MOST_POSITIONS  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.backends.triton.launch import launch  # noqa: E402
from specla.backends.weights import WeightSource  # noqa: E402
from specla.core.plan import Place, build_plan, map_arrays  # noqa: E402
from specla.core.topology import Forest, Tree  # noqa: E402
from specla.errors import CapacityError, UnsupportedModelError  # noqa: E402
from specla.testing.kernels.products import random_source  # noqa: E402

pytestmark = MARKS

FLOATS = 2**31
N = 3
WIDTH, NODES, LAYERS = 256, 2048, FLOATS // (2 * 2048 * 256) + 1
"""Of one slot's banks. The last layer's entries of bank 1 lie beyond FLOATS."""


def lazily(*shape: int) -> torch.Tensor:
    """Zeros that take memory where they are written."""
    try:
        return torch.from_numpy(np.zeros(shape, np.float32))
    except MemoryError:
        pytest.skip("this system promises no memory that isn't free")


def test_banks() -> None:
    """Factors are written to bank 1, and folded out of it."""
    rng = np.random.default_rng(4)
    x: list[Any] = [rng.standard_normal((N, 1, size)).astype(np.float32) for size in (1, 1, WIDTH)]
    x += [rng.uniform(0.5, 1, (N, 1)).astype(np.float32) for _ in range(2)]
    banks = [lazily(1, 2, LAYERS, NODES, 1, size) for size in (1, WIDTH)]
    banks.append(lazily(1, 2, LAYERS, NODES, 1))
    found = [_verify_and_fold(backend, x, banks) for backend in (NumpyBackend(), TritonBackend())]
    for wanted, ours in zip(*found, strict=True):
        assert wanted.any() and equal(ours, wanted)


def _verify_and_fold(backend: Any, x: list[Any], banks: list[Any]) -> list[Any]:
    """Output, factors and state of the last layer."""
    shape, layer = RecurrentShape(1, LAYERS, NODES, 1, 1, 1, WIDTH, 1), LAYERS - 1
    for bank in banks:
        bank[0, :, layer, :N] = torch.nan
    arrays: list[Any] = [lazily(1, LAYERS, 1, 1, WIDTH), *banks, lazily(1, 1, 1, WIDTH)]
    if backend.name == "numpy":
        arrays = [array.numpy() for array in arrays]
    state, key, delta, decay, boundary = arrays
    pool = RecurrentPool(shape, state, None, key, delta, decay, None, boundary)

    def plan(bank: int, pending: int) -> Any:
        counts = (pending,) * LAYERS
        built = build_plan(Forest((Tree.chain(range(N)),)), [Place(0, 0, bank, counts, counts)])
        return map_arrays(built, lambda _, host: backend.upload(host))

    out = backend.zeros((N, 1, WIDTH))
    backend.gdn_verify(*map(backend.upload, x), pool, layer, plan(0, 0), out)
    backend.fold_state(pool, layer, plan(1, N))
    factors = [bank[0, 1, layer, :N] for bank in (key, delta, decay)]
    results = [out, *factors, state[0, layer]]
    return [np.array(backend.download(result)) for result in results]


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_segments(kind: str) -> None:
    """One tile of an array that would have many: its last segments begin beyond FLOATS."""
    n, rows = FLOATS // 7 // 512 + 64, 512  # rows: of W
    partial = lazily(8, n, rows)
    assert partial[:7].numel() > FLOATS
    rng = np.random.default_rng(5)
    if kind == "F32":
        w = torch.from_numpy(rng.standard_normal((rows, 256)).astype(np.float32))
        x = torch.from_numpy(rng.standard_normal((1, 256)).astype(np.float32))
        one = (segments._float_segment, x, partial, n, 256, 8)
        members, meta = [w, rows, 0], {}
    else:
        weight = TritonBackend().load(random_source(rng, kind, rows, 8, "plain"))
        q = torch.from_numpy(rng.integers(1, 127, (16, 256)).astype(np.int8))
        scale = torch.from_numpy(rng.uniform(1, 2, (16, 8)).astype(np.float32))
        one = (segments._segment, q, scale, torch.zeros(1), partial, n, 8)
        members = [*segments._arrays(weight), rows, 0]
        meta = {**segments.layout_of(weight), "TOKENS": 16}
    meta |= {"COUNT": 1, "ROWS": segments.ROWS}
    kernel, *shared = one
    launch(kernel, (1, 8, 1), *shared, *members * segments.MOST, **meta)
    assert partial[:, 0].all()
    out = torch.zeros(endings.SIZE)
    sums = [out, n * rows] * 4
    launch(endings._add_segments, (1,), partial, *sums, COUNT=1, SIZE=endings.SIZE)
    ((a, e), (c, g)), ((b, f), (d, h)) = (
        ((partial[i, 0, : endings.SIZE], partial[i + 4, 0, : endings.SIZE]) for i in (j, j + 2))
        for j in (0, 1)
    )
    wanted = ((a + e) + (c + g)) + ((b + f) + (d + h))
    assert equal(out.numpy(), wanted.numpy())


def test_a_quantised_matrix_that_is_too_large_is_refused() -> None:
    source = WeightSource("big", "Q8_0", 2**16, 2**15, np.zeros((0, 0), np.uint8))
    with pytest.raises(UnsupportedModelError, match="big has 65536 rows of 32768") as caught:
        TritonBackend().load(source)
    assert "\n" not in str(caught.value)


def test_a_context_of_more_blocks_than_a_grid_has() -> None:
    """Refused before it is allocated."""
    shape = KvShape(1, 1, 1, 1, 1, MOST_POSITIONS, "f16")
    assert TritonBackend().kv_pool(shape).shape is shape
    with pytest.raises(CapacityError, match=r"4194241 positions.* 4194240 at most; lower --ctx"):
        TritonBackend().kv_pool(replace(shape, context=MOST_POSITIONS + 1))
