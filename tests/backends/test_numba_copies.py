"""Embedding rows and copies of the compiled backend: the reference's bytes."""

from __future__ import annotations

import copy
from itertools import accumulate

import numpy as np
import pytest
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st
from numba_values import seeds
from support.arrays import equal, filled
from support.forests import forests

from specla.backends.base import Weight
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.embed import COMPILED
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.pools import KvShape, RecurrentShape
from specla.backends.weights import WeightSource
from specla.core.banks import BankMove, Banks
from specla.core.plan import Place, build_commit_plan, build_plan
from specla.core.topology import Forest

REFERENCE, COMPILED_BACKEND = NumpyBackend(), NumbaBackend()
BACKENDS = (COMPILED_BACKEND, REFERENCE)


@pytest.mark.parametrize("writable", [True, False])
@pytest.mark.parametrize("kind", [*COMPILED, "Q5_0"])
@given(seed=seeds, blocks=st.integers(1, 3), n=st.integers(1, 5))
def test_embed(kind: str, writable: bool, seed: int, blocks: int, n: int) -> None:
    """Any bytes at all, infinite and NaN scales included; Q5_0 goes through the reference."""
    rng = np.random.default_rng(seed)
    block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType[kind]]
    blocks = 37 * blocks if block == 1 else blocks
    data = rng.integers(0, 256, (9, blocks * block_bytes), dtype=np.uint8)
    data.flags.writeable = writable
    weight = Weight(WeightSource("embedding", kind, 9, blocks * block, data), True, None)
    tokens = rng.integers(0, 9, n, dtype=np.int32)
    found, wanted = filled(n, blocks * block), filled(n, blocks * block)
    with np.errstate(all="ignore"):
        REFERENCE.embed(tokens, weight, wanted)
    COMPILED_BACKEND.embed(tokens, weight, found)
    assert equal(found, wanted)


def _moves(rng: np.random.Generator, count: int) -> tuple[tuple[int, int], ...]:
    """(from, to), both ascending, every target before its source, with overlaps."""
    steps = [0, *accumulate(int(s) for s in rng.integers(0, 4, count - 1))]
    gap = int(rng.integers(1, 6))
    return tuple((i + gap + step, i) for i, step in enumerate(steps))


@pytest.mark.parametrize("kv", ["f16", "f32"])
@given(seed=seeds, counts=st.lists(st.integers(1, 12), min_size=1, max_size=3))
def test_moves(kv: str, seed: int, counts: list[int]) -> None:
    rng = np.random.default_rng(seed)
    slots = rng.permutation(3)
    pool = REFERENCE.kv_pool(KvShape(3, 2, 12, 2, 5, 192, kv))
    pool.key[...], pool.value[...] = (rng.standard_normal(pool.key.shape) for _ in range(2))
    pool.page_table[...] = rng.permutation(12)[:9].reshape(3, 3)
    features = REFERENCE.feature_pool((1, 5), 3, 192, 4)
    features.rows[...] = rng.standard_normal(features.rows.shape)
    items = [
        (int(slots[b]), int(rng.integers(0, 130)), BankMove(Banks(), 0, (), _moves(rng, count)))
        for b, count in enumerate(counts)
    ]
    commit = build_commit_plan(items)
    results = []
    for backend in BACKENDS:
        mine, rows = copy.deepcopy(pool), copy.deepcopy(features)
        backend.kv_move(mine, commit)
        backend.feature_move(rows, commit)
        results.append((mine.key, mine.value, rows.rows))
    for one, other in zip(*results, strict=True):
        assert equal(one, other)


@given(forest=forests(3, 12), seed=seeds)
def test_feature_write(forest: Forest, seed: int) -> None:
    rng = np.random.default_rng(seed)
    slots = rng.permutation(len(forest.trees))
    plan = build_plan(forest, [Place(int(slot), 7, 0, (), ()) for slot in slots])
    x = rng.standard_normal((plan.n_rows, 6)).astype(np.float32)
    results = []
    for backend in BACKENDS:
        pool = backend.feature_pool((0, 3), len(slots), 64, 6)
        REFERENCE.poison(pool.rows)
        backend.feature_write(x, pool, 1, plan)
        results.append(pool.rows)
    assert equal(results[0], results[1])


@given(seed=seeds, paths=st.lists(st.sets(st.integers(0, 6), min_size=1), min_size=1, max_size=3))
def test_gather(seed: int, paths: list[set[int]]) -> None:
    rng = np.random.default_rng(seed)
    pool = REFERENCE.recurrent_pool(RecurrentShape(3, 2, 7, 2, 3, 4, 5, 4))
    for bank in (pool.key, pool.delta, pool.decay, pool.inputs):
        bank[...] = rng.standard_normal(bank.shape)
    items = [
        (b, 0, BankMove(Banks(), int(rng.integers(0, 2)), tuple(sorted(path)), ()))
        for b, path in enumerate(paths)
    ]
    commit = build_commit_plan(items)
    results = []
    for backend in BACKENDS:
        mine = copy.deepcopy(pool)
        backend.gather(mine, commit)
        results.append((mine.key, mine.delta, mine.decay, mine.inputs))
    for one, other in zip(*results, strict=True):
        assert equal(one, other)
