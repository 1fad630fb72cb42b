"""Attention over the paged cache against one query, one head and one key at a time."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import equal, filled
from support.forests import forests, naive_path
from support.oracle import F32, tree_sum

from specla.backends.numpy.backend import NumpyBackend
from specla.backends.pools import KvPool, KvShape
from specla.core import elementary
from specla.core.banks import BankMove, Banks
from specla.core.paging import PAGE
from specla.core.plan import Place, StepPlan, build_commit_plan, build_plan
from specla.core.topology import Forest, Tree

backend = NumpyBackend()
LAYERS, HEADS, GROUP, DIM = 2, 2, 2, 6
SCALE = DIM**-0.5


@dataclass
class Case:
    forest: Forest
    places: list[Place]
    plan: StepPlan
    kv: KvPool
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    # what is stored at each (slot, cache row): float32 of the rounded value
    keys: dict[tuple[int, int], np.ndarray]
    values: dict[tuple[int, int], np.ndarray]


def make_case(forest: Forest, committed: list[int], dtype: str, seed: int) -> Case:
    rng = np.random.default_rng(seed)
    n_seq, context = len(forest.trees), 256
    kv = backend.kv_pool(KvShape(n_seq, LAYERS, n_seq * 4 + 1, HEADS, DIM, context, dtype))
    backend.poison(kv.key)
    backend.poison(kv.value)
    # pages anywhere, in any order
    kv.page_table[...] = rng.permutation(n_seq * 4 + 1)[: n_seq * 4].reshape(n_seq, 4)
    slots = rng.permutation(n_seq)
    places = [Place(int(slots[b]), committed[b], 0, (), ()) for b in range(n_seq)]
    plan = build_plan(forest, places)
    keys, values = {}, {}
    for place in places:
        for row in range(place.committed):
            page, offset = kv.page_table[place.slot, row // PAGE], row % PAGE
            for cache, kept in ((kv.key, keys), (kv.value, values)):
                stored = (2 * rng.standard_normal((HEADS, DIM))).astype(cache.dtype)
                cache[1, page, offset] = stored
                kept[place.slot, row] = stored.astype(F32)
    shape = (plan.n_rows, HEADS, DIM)
    k, v = (2 * rng.standard_normal(shape)).astype(F32), rng.standard_normal(shape).astype(F32)
    q = (2 * rng.standard_normal((plan.n_rows, HEADS * GROUP, DIM))).astype(F32)
    row = 0
    for tree, place in zip(forest.trees, places, strict=True):
        for node in range(len(tree)):
            at = (place.slot, place.committed + node)
            keys[at] = k[row].astype(kv.key.dtype).astype(F32)
            values[at] = v[row].astype(kv.key.dtype).astype(F32)
            row += 1
    return Case(forest, places, plan, kv, q, k, v, keys, values)


def naive_attention(q: np.ndarray, keys: list[np.ndarray], values: list[np.ndarray]) -> np.ndarray:
    """One query row [query heads, D]; keys, values: [heads, D] of each visible position."""
    out = np.empty_like(q)
    for head in range(len(q)):
        scores = [F32(tree_sum(q[head] * key[head // GROUP]) * F32(SCALE)) for key in keys]
        biggest = max(scores)
        weights = [elementary.exp(F32(score - biggest)) for score in scores]
        total, mixed = F32(0), np.zeros(q.shape[1], dtype=F32)
        for start in range(0, len(keys), PAGE):
            block = np.zeros(PAGE, dtype=F32)
            parts = np.zeros((PAGE, q.shape[1]), dtype=F32)
            for i in range(start, min(start + PAGE, len(keys))):
                block[i - start] = weights[i]
                parts[i - start] = weights[i] * values[i][head // GROUP]
            total = F32(total + tree_sum(block))
            mixed = mixed + tree_sum(parts)
        out[head] = mixed / total
    return out


def check(case: Case) -> np.ndarray:
    key_before, value_before = case.kv.key.copy(), case.kv.value.copy()
    backend.kv_write(case.k, case.v, case.kv, 1, case.plan)
    out = filled(*case.q.shape)
    backend.attention(case.q, case.kv, 1, case.plan, SCALE, out)
    row = 0
    for tree, place in zip(case.forest.trees, case.places, strict=True):
        for node in range(len(tree)):
            at = place.committed + node
            page, offset = case.kv.page_table[place.slot, at // PAGE], at % PAGE
            key_before[1, page, offset] = case.k[row].astype(case.kv.key.dtype)
            value_before[1, page, offset] = case.v[row].astype(case.kv.value.dtype)
            seen = list(range(place.committed))
            seen += [place.committed + n for n in naive_path(tree, node)]
            keys = [case.keys[place.slot, r] for r in seen]
            values = [case.values[place.slot, r] for r in seen]
            assert equal(out[row], naive_attention(case.q[row], keys, values)), f"row {row}"
            row += 1
    # written where it belongs and nowhere else
    assert equal(case.kv.key, key_before) and equal(case.kv.value, value_before)
    return out


@pytest.mark.parametrize("dtype", ["f16", "f32"])
@settings(max_examples=8)
@given(
    forest=forests(2, 6),
    committed=st.lists(st.integers(0, 200), min_size=2, max_size=2),
    seed=st.integers(0, 2**32 - 1),
)
def test_attention(dtype: str, forest: Forest, committed: list[int], seed: int) -> None:
    check(make_case(forest, committed, dtype, seed))


@pytest.mark.parametrize("committed", [0, 1, 61, 62, 63, 64, 65, 127, 128])
def test_around_a_page_boundary(committed: int) -> None:
    tree = Tree.build(range(5), [-1, 0, 0, 2, 3])
    check(make_case(Forest((tree,)), [committed], "f16", committed))


def test_rows_alone_and_in_company() -> None:
    """The same row as the end of a chain of its own ancestors, in another cache layout."""
    tree = Tree.build(range(7), [-1, 0, 0, 1, 2, 2, 5])
    case = make_case(Forest((tree, Tree.lone(3))), [90, 5], "f16", 3)
    together = check(case)
    for node in range(len(tree)):
        path = naive_path(tree, node)
        alone = make_case(Forest((Tree.chain(range(len(path))),)), [90], "f16", 99)
        for row in range(90):
            for mine, theirs in ((alone.kv.key, case.kv.key), (alone.kv.value, case.kv.value)):
                page = case.kv.page_table[case.places[0].slot, row // PAGE]
                target = alone.kv.page_table[0, row // PAGE]
                mine[1, target, row % PAGE] = theirs[1, page, row % PAGE]
        out = filled(len(path), HEADS * GROUP, DIM)
        backend.kv_write(case.k[path], case.v[path], alone.kv, 1, alone.plan)
        backend.attention(case.q[path], alone.kv, 1, alone.plan, SCALE, out)
        assert equal(out[-1], together[node])


def test_siblings_do_not_see_each_other() -> None:
    tree = Tree.build(range(4), [-1, 0, 0, 1])
    case = make_case(Forest((tree,)), [3], "f32", 1)
    other = make_case(Forest((tree,)), [3], "f32", 1)
    other.k[2], other.v[2] = np.nan, np.inf
    found = []
    for c in (case, other):
        backend.kv_write(c.k, c.v, c.kv, 1, c.plan)
        found.append(filled(*c.q.shape))
        backend.attention(c.q, c.kv, 1, c.plan, SCALE, found[-1])
    assert equal(found[0][[0, 1, 3]], found[1][[0, 1, 3]])
    assert not np.isfinite(found[1][2]).all()


def test_rounding_on_write() -> None:
    forest = Forest((Tree.chain([1, 2]),))
    case = make_case(forest, [0], "f16", 0)
    case.k[...] = F32(1 + 2**-11)  # half-way between two float16: to even
    case.k[1] = F32(1 + 3 * 2**-11)
    case.v[0], case.v[1] = F32(1e6), F32(2**-25)  # overflow; half the smallest subnormal
    backend.kv_write(case.k, case.v, case.kv, 0, case.plan)
    page = case.kv.page_table[0, 0]
    assert (case.kv.key[0, page, 0] == 1).all()
    assert (case.kv.key[0, page, 1] == np.float16(1 + 2**-9)).all()
    assert np.isinf(case.kv.value[0, page, 0]).all()
    assert (case.kv.value[0, page, 1] == 0).all()


def full_pool(seed: int, dtype: str = "f16") -> KvPool:
    rng = np.random.default_rng(seed)
    kv = backend.kv_pool(KvShape(2, LAYERS, 7, HEADS, DIM, 192, dtype))
    for cache in (kv.key, kv.value):
        cache[...] = rng.standard_normal(cache.shape)
    kv.page_table[...] = rng.permutation(7)[:6].reshape(2, 3)
    return kv


@given(
    base=st.integers(0, 150),
    steps=st.lists(st.integers(0, 4), min_size=1, max_size=12),
    gap=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_kv_move(base: int, steps: list[int], gap: int, seed: int) -> None:
    """Overlapping ranges, page boundaries: as if all were read before any was written."""
    target = [base + i for i in range(len(steps))]
    source = [t + gap + sum(steps[: i + 1]) for i, t in enumerate(target)]
    if source[-1] >= 192:
        return
    kv = full_pool(seed)
    wanted = copy.deepcopy(kv)
    for s, t in zip(source, target, strict=True):
        for mine, theirs in ((wanted.key, kv.key), (wanted.value, kv.value)):
            to_page, from_page = kv.page_table[1, t // PAGE], kv.page_table[1, s // PAGE]
            mine[:, to_page, t % PAGE] = theirs[:, from_page, s % PAGE]
    move = BankMove(Banks(), 0, (), tuple(zip(source, target, strict=True)))
    backend.kv_move(kv, build_commit_plan([(1, 0, move)]))
    assert equal(kv.key, wanted.key) and equal(kv.value, wanted.value)


def test_features() -> None:
    rng = np.random.default_rng(0)
    pool = backend.feature_pool((1, 5), 3, 40, 4)
    backend.poison(pool.rows)
    forest = Forest((Tree.build(range(4), [-1, 0, 0, 2]), Tree.chain([1, 2])))
    plan = build_plan(forest, [Place(2, 10, 0, (), ()), Place(0, 0, 0, (), ())])
    x = rng.standard_normal((6, 4)).astype(F32)
    backend.feature_write(x, pool, 1, plan)
    wanted = filled(3, 40, 2, 4)
    wanted[2, 10:14, 1], wanted[0, 0:2, 1] = x[:4], x[4:]
    assert equal(pool.rows, wanted)
    moves = BankMove(Banks(), 0, (), ((2, 1), (3, 2))), BankMove(Banks(), 0, (), ((1, 0),))
    backend.feature_move(pool, build_commit_plan([(2, 10, moves[0]), (0, 0, moves[1])]))
    wanted[2, 11:13, 1] = x[2:4]
    wanted[0, 0, 1] = x[5]
    assert equal(pool.rows, wanted)
