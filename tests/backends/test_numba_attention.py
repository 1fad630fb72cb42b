"""Attention and cache writes of the compiled backend: the reference's bytes."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba_values import moods, seeds, strided, values
from support.arrays import equal, filled
from support.forests import forests

from specla.backends.numba import attention, primitives
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numba.jit import Kernel
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.pools import KvShape
from specla.core.plan import Place, build_plan
from specla.core.topology import Forest, Tree

REFERENCE, COMPILED = NumpyBackend(), NumbaBackend()
dims = st.one_of(st.integers(1, 40), st.sampled_from([64, 96, 128, 256, 300, 512]))


def compare(
    forest: Forest,
    committed: list[int],
    heads: int,
    group: int,
    dim: int,
    kv: str,
    mood: str,
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    n_seq, per_slot = len(forest.trees), 6
    shape = KvShape(n_seq, 2, n_seq * per_slot + 1, heads, dim, 64 * per_slot, kv)
    pool = REFERENCE.kv_pool(shape)
    pages = rng.permutation(shape.pages)[: n_seq * per_slot]
    pool.page_table[...] = pages.reshape(n_seq, per_slot)
    slots = rng.permutation(n_seq)
    places = [Place(int(slots[b]), committed[b], 0, (), ()) for b in range(n_seq)]
    plan = build_plan(forest, places)
    for cache in (pool.key, pool.value):
        REFERENCE.poison(cache)
        with np.errstate(over="ignore"):
            for place in places:
                for row in range(place.committed):
                    stored = values(rng, mood, heads, dim).astype(cache.dtype)
                    cache[1, pool.page_table[place.slot, row // 64], row % 64] = stored
    n = plan.n_rows
    k, v = (strided(rng, values(rng, mood, n, heads, dim)) for _ in range(2))
    q = strided(rng, values(rng, mood, n, heads * group, dim))
    other = copy.deepcopy(pool)
    results = []
    for backend, mine in ((COMPILED, pool), (REFERENCE, other)):
        out = filled(n, heads * group, dim)
        backend.kv_write(k, v, mine, 1, plan)
        backend.attention(q, mine, 1, plan, dim**-0.5, out)
        results.append(out)
    assert equal(pool.key, other.key) and equal(pool.value, other.value), "cache"
    assert equal(results[0], results[1]), "attention"


@pytest.mark.parametrize("kv", ["f16", "f32"])
@settings(max_examples=50)
@given(
    forest=forests(3, 14),
    data=st.data(),
    heads=st.integers(1, 3),
    group=st.integers(1, 6),
    dim=dims,
    mood=moods,
    seed=seeds,
)
def test_attention(
    kv: str,
    forest: Forest,
    data: st.DataObject,
    heads: int,
    group: int,
    dim: int,
    mood: str,
    seed: int,
) -> None:
    lengths = st.one_of(st.integers(0, 200), st.sampled_from([0, 1, 50, 63, 64, 65, 127, 128]))
    committed = [data.draw(lengths) for _ in forest.trees]
    compare(forest, committed, heads, group, dim, kv, mood, seed)


@pytest.mark.parametrize("kv", ["f16", "f32"])
@settings(max_examples=5)
@given(forest=forests(8, 64), mood=moods, seed=seeds)
def test_large_forests(kv: str, forest: Forest, mood: str, seed: int) -> None:
    committed = [37 * b for b in range(len(forest.trees))]
    compare(forest, committed, 1, 2, 16, kv, mood, seed)


@pytest.mark.parametrize("committed", [0, 60, 64, 130])
def test_long_chain(committed: int) -> None:
    """A prefill: a chain that spans blocks."""
    compare(Forest((Tree.chain(range(150)),)), [committed], 2, 2, 24, "f16", "plain", 3)


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=6),
    heads=st.integers(1, 4),
    group=st.integers(1, 40),
)
def test_units_cover_every_row_once(lengths: list[int], heads: int, group: int) -> None:
    most = attention.rows_of_unit(heads * group, heads)
    offset = np.cumsum([0, *lengths]).astype(np.int32)
    units = attention.units(int(offset[-1]), len(lengths), heads * group, heads)
    runs = [attention._run_of_rows(u, most, offset) for u in range(units // heads)]
    rows = [(b, row) for b, first, last in runs for row in range(first, last)]
    wanted = [(b, row) for b, n in enumerate(lengths) for row in range(offset[b], offset[b] + n)]
    assert units % heads == 0 and rows == wanted
    assert all(last - first <= most for _, first, last in runs)


def test_units_in_any_order() -> None:
    """One unit per call, the last one first: nothing passes from one to another."""
    rng = np.random.default_rng(5)
    forest = Forest((Tree.chain(range(11)), Tree.build(range(9), [-1, 0, 0, 1, 1, 2, 2, 0, 7])))
    plan = build_plan(forest, [Place(1, 70, 0, (), ()), Place(0, 130, 0, (), ())])
    pool = REFERENCE.kv_pool(KvShape(2, 1, 6, 2, 64, 192, "f32"))
    pool.key[...], pool.value[...] = (values(rng, "plain", *pool.key.shape) for _ in range(2))
    pool.page_table[...] = rng.permutation(6).reshape(2, 3)
    q, wanted, found = values(rng, "plain", 20, 8, 64), filled(20, 8, 64), filled(20, 8, 64)
    REFERENCE.attention(q, pool, 0, plan, 0.125, wanted)
    units = attention.units(20, 2, 8, 2)
    assert units == 8
    for unit in reversed(range(units)):
        arrays = (q, pool.key, pool.value, 0, pool.page_table, plan.slot, plan.committed)
        rest = (plan.row_offset, plan.position, plan.path_start, plan.paths, plan.chain_rows)
        chains = (plan.chain_offset, plan.chain_sequence, np.float32(0.125))
        attention.attention["f32"](*arrays, *rest, *chains, found, unit, unit + 1)
    assert equal(found, wanted)


def _boundaries() -> np.ndarray:
    """Every boundary between two float16 values, the floats beside it, and any bits at all."""
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float32)
    middle = (halves[:-1] + halves[1:]) / np.float32(2)
    words = [m + d for m in middle.view(np.int32) for d in (-1, 0, 1)]
    x = np.array([w for w in words if w >= 0], dtype=np.int32).view(np.float32)
    rng = np.random.default_rng(0)
    top = np.array([65504, 65519.996, 65520, 65536, 1e30, np.inf, np.nan], dtype=np.float32)
    random = rng.integers(0, 2**32, 1 << 16, dtype=np.uint32).view(np.float32)
    x = np.concatenate([x, top, random])
    return np.concatenate([x, -x])


@pytest.mark.parametrize("native", [True, False])
def test_narrowing(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the processor's instruction, where it has one, and without."""
    if not native:
        monkeypatch.setattr(primitives, "has", lambda feature: False)

    def narrow_all(x: np.ndarray, out: np.ndarray) -> None:
        for i in range(x.shape[0]):
            out[i] = primitives.narrow(x[i])

    x = _boundaries()
    out = np.zeros(len(x), dtype=np.uint16)
    Kernel(narrow_all, "void(float32[::1], uint16[::1])")(x, out)
    with np.errstate(over="ignore"):
        assert equal(out.view(np.float16), x.astype(np.float16))


def test_float16_rounding() -> None:
    x = _boundaries()
    x = x[: len(x) // 4 * 4].reshape(1, 1, -1)
    shape = KvShape(1, 1, 1, 1, x.shape[2], 64, "f16")
    plan = build_plan(Forest((Tree.lone(0),)), [Place(0, 0, 0, (), ())])
    pools = []
    for backend in (COMPILED, REFERENCE):
        pool = REFERENCE.kv_pool(shape)
        REFERENCE.clear(pool.key)
        REFERENCE.clear(pool.value)
        pool.page_table[...] = 0
        backend.kv_write(x, x, pool, 0, plan)
        pools.append(pool)
    assert equal(pools[0].key, pools[1].key) and equal(pools[0].value, pools[1].value)
