"""Convolution and gated delta rule over forests, against one sequence walked token by token.

Every kernel's whole effect is checked: the pool after it must equal, byte for byte, the pool
before it plus exactly the writes that its description names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import equal, filled, normal
from support.forests import forests, naive_path, trees
from support.oracle import F32, SequentialGdn

from specla.backends.numpy.backend import NumpyBackend
from specla.backends.numpy.factorised import verify_factorised
from specla.backends.pools import RecurrentPool, RecurrentShape
from specla.core import elementary
from specla.core.banks import BankMove, Banks
from specla.core.plan import Place, StepPlan, build_commit_plan, build_plan
from specla.core.topology import Forest, Tree

backend = NumpyBackend()
ARRAYS = ("state", "window", "key", "delta", "decay", "inputs")
NODES = 14


@dataclass
class Case:
    """A forest of sequences with pending factors, in one layer of a pool of random content."""

    forest: Forest
    places: list[Place]
    plan: StepPlan
    pool: RecurrentPool
    before: RecurrentPool
    layer: int
    weight: np.ndarray
    x: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    decay: np.ndarray
    beta: np.ndarray

    @property
    def gdn(self) -> tuple[Any, ...]:
        return self.q, self.k, self.v, self.decay, self.beta, self.pool, self.layer, self.plan

    def rows(self) -> Iterator[tuple[int, int, int, int, list[int]]]:
        """Row, sequence index, slot, node, path from the root."""
        row = 0
        for b, tree in enumerate(self.forest.trees):
            for node in range(len(tree)):
                yield row, b, self.places[b].slot, node, naive_path(tree, node)
                row += 1

    def out(self) -> np.ndarray:
        shape = self.pool.shape
        return filled(self.plan.n_rows, shape.value_heads, shape.value_dim)

    def started(self, b: int) -> SequentialGdn:
        """The sequence's oracle with its pending factors folded."""
        place, pool = self.places[b], self.before
        oracle = SequentialGdn(
            pool.state[place.slot, self.layer], pool.window[place.slot, self.layer]
        )
        for i in range(place.pending_state[self.layer]):
            at = (place.slot, place.pending_bank, self.layer, i)
            oracle.fold(pool.key[at], pool.delta[at], pool.decay[at])
        for i in range(place.pending_window[self.layer]):
            x = pool.inputs[place.slot, place.pending_bank, self.layer, i]
            oracle.window = [*oracle.window[1:], x]
        return oracle


def random_pool(rng: np.random.Generator, shape: RecurrentShape) -> RecurrentPool:
    pool = backend.recurrent_pool(shape)
    for name in ARRAYS:
        array = getattr(pool, name)
        array[...] = normal(rng, *array.shape)
    pool.decay[...] = rng.uniform(0.2, 1, pool.decay.shape)
    pool.boundary[...] = np.nan
    return pool


def make_case(forest: Forest, seed: int, *, pending: bool = True) -> Case:
    rng = np.random.default_rng(seed)
    layers, key_heads = 3, int(rng.integers(1, 4))
    shape = RecurrentShape(
        slots=len(forest.trees) + 1,
        layers=layers,
        nodes=NODES,
        key_heads=key_heads,
        value_heads=key_heads * int(rng.integers(1, 3)),
        key_dim=int(rng.integers(1, 9)),
        value_dim=int(rng.integers(1, 5)),
        conv_width=int(rng.integers(2, 6)),
    )
    slots = rng.permutation(shape.slots)

    def counts() -> tuple[int, ...]:
        return tuple(int(c) if pending else 0 for c in rng.integers(0, NODES + 1, layers))

    places = [
        Place(int(slots[b]), 10 * b, int(rng.integers(2)), counts(), counts())
        for b in range(len(forest.trees))
    ]
    plan = build_plan(forest, places)
    pool = random_pool(rng, shape)
    n = plan.n_rows
    k = rng.standard_normal((n, shape.key_heads, shape.key_dim))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    return Case(
        forest=forest,
        places=places,
        plan=plan,
        pool=pool,
        before=copy.deepcopy(pool),
        layer=int(rng.integers(layers)),
        weight=normal(rng, shape.conv_width, shape.channels),
        x=normal(rng, n, shape.channels),
        q=normal(rng, n, shape.key_heads, shape.key_dim),
        k=k.astype(F32),
        v=normal(rng, n, shape.value_heads, shape.value_dim),
        decay=rng.uniform(0, 1, (n, shape.value_heads)).astype(F32),
        beta=rng.uniform(0, 1, (n, shape.value_heads)).astype(F32),
    )


def same_pools(found: RecurrentPool, wanted: RecurrentPool) -> list[str]:
    """Names of the arrays that differ."""
    return [n for n in ARRAYS if not equal(getattr(found, n), getattr(wanted, n))]


cases = st.builds(make_case, forests(3, NODES), st.integers(0, 2**32 - 1))
settled = st.builds(lambda f, s: make_case(f, s, pending=False), forests(3), st.integers(0, 2**32))
examples = settings(max_examples=40)


@examples
@given(cases)
def test_conv_verify(case: Case) -> None:
    out = filled(*case.x.shape)
    backend.conv_verify(case.x, case.weight, case.pool, case.layer, case.plan, out)
    wanted = copy.deepcopy(case.before)
    for row, b, slot, node, path in case.rows():
        oracle = case.started(b)
        wanted.window[slot, case.layer] = oracle.window
        wanted.inputs[slot, 1 - case.places[b].pending_bank, case.layer, node] = case.x[row]
        for step in path:
            one = oracle.conv(case.x[row - node + step], case.weight)
        assert equal(out[row], one), f"row {row}"
    assert same_pools(case.pool, wanted) == []


@examples
@given(cases)
def test_gdn_verify(case: Case) -> None:
    out = case.out()
    backend.gdn_verify(*case.gdn, out)
    wanted = copy.deepcopy(case.before)
    for row, b, slot, node, path in case.rows():
        oracle = case.started(b)
        wanted.state[slot, case.layer] = oracle.state
        for step in path:
            r = row - node + step
            one, delta = oracle.step(case.q[r], case.k[r], case.v[r], case.decay[r], case.beta[r])
        assert equal(out[row], one), f"row {row}"
        at = (slot, 1 - case.places[b].pending_bank, case.layer, node)
        wanted.key[at], wanted.delta[at] = case.k[row], delta
        wanted.decay[at] = case.decay[row]
        boundary = case.plan.boundary_of_row[row]
        if boundary >= 0:
            assert equal(case.pool.boundary[boundary], oracle.state)
    assert same_pools(case.pool, wanted) == []


@examples
@given(cases)
def test_folds(case: Case) -> None:
    backend.fold_window(case.pool, case.layer, case.plan)
    wanted = copy.deepcopy(case.before)
    for b, place in enumerate(case.places):
        wanted.window[place.slot, case.layer] = case.started(b).window
    assert same_pools(case.pool, wanted) == []
    backend.fold_state(case.pool, case.layer, case.plan)
    for b, place in enumerate(case.places):
        wanted.state[place.slot, case.layer] = case.started(b).state
    assert same_pools(case.pool, wanted) == []


@examples
@given(settled)
def test_prefill(case: Case) -> None:
    """Chains move the durable arrays on and keep no factors."""
    chains = Forest(tuple(Tree.chain(tree.tokens) for tree in case.forest.trees))
    case = replace(case, forest=chains, plan=build_plan(chains, case.places))
    conv_out, out = filled(*case.x.shape), case.out()
    backend.conv_prefill(case.x, case.weight, case.pool, case.layer, case.plan, conv_out)
    backend.gdn_prefill(*case.gdn, out)
    wanted = copy.deepcopy(case.before)
    for b, place in enumerate(case.places):
        oracle = case.started(b)
        for r in range(case.plan.row_offset[b], case.plan.row_offset[b + 1]):
            assert equal(conv_out[r], oracle.conv(case.x[r], case.weight))
            one, _ = oracle.step(case.q[r], case.k[r], case.v[r], case.decay[r], case.beta[r])
            assert equal(out[r], one)
        wanted.window[place.slot, case.layer] = oracle.window
        wanted.state[place.slot, case.layer] = oracle.state
    assert same_pools(case.pool, wanted) == []


@examples
@given(settled, st.data())
def test_verify_gather_fold_is_prefill(case: Case, data: st.DataObject) -> None:
    """Accept any path of a tree: the folded state is the one that walking the path leaves."""
    tree = case.forest.trees[0]
    path = naive_path(tree, data.draw(st.integers(0, len(tree) - 1)))
    backend.conv_verify(
        case.x, case.weight, case.pool, case.layer, case.plan, filled(*case.x.shape)
    )
    backend.gdn_verify(*case.gdn, case.out())
    slot, bank = case.places[0].slot, case.places[0].pending_bank
    before = copy.deepcopy(case.pool)
    move = BankMove(Banks(bank, len(path)), 1 - bank, tuple(path), ())
    # a neighbour's copies, in the same call
    other = case.places[-1]
    items = [(slot, 0, move)]
    if other.slot != slot:
        node = len(case.forest.trees[-1]) - 1  # another one than the first path begins with
        theirs = BankMove(Banks(other.pending_bank, 1), 1 - other.pending_bank, (node,), ())
        items.append((other.slot, 0, theirs))
        for name in ("key", "delta", "decay", "inputs"):
            array, bank_too = getattr(before, name), other.pending_bank
            array[other.slot, bank_too, :, 0] = array[other.slot, 1 - bank_too, :, node]
    backend.gather(case.pool, build_commit_plan(items))
    for name in ("key", "delta", "decay", "inputs"):
        wanted = getattr(before, name)
        for i, node in enumerate(path):
            wanted[slot, bank, :, i] = wanted[slot, 1 - bank, :, node]
    assert same_pools(case.pool, before) == []
    folded = (len(path),) * 3
    fold = build_plan(Forest((Tree.lone(0),)), [Place(slot, 0, bank, folded, folded)])
    backend.fold_window(case.pool, case.layer, fold)
    backend.fold_state(case.pool, case.layer, fold)
    oracle = case.started(0)
    for r in path:
        oracle.conv(case.x[r], case.weight)
        oracle.step(case.q[r], case.k[r], case.v[r], case.decay[r], case.beta[r])
    assert equal(case.pool.window[slot, case.layer], np.array(oracle.window))
    assert equal(case.pool.state[slot, case.layer], oracle.state)


@examples
@given(cases, st.data())
def test_rows_alone(case: Case, data: st.DataObject) -> None:
    """A row of a forest equals the last row of its own path, alone in the batch."""
    conv_out, out = filled(*case.x.shape), case.out()
    alone = copy.deepcopy(case.before)
    backend.conv_verify(case.x, case.weight, case.pool, case.layer, case.plan, conv_out)
    backend.gdn_verify(*case.gdn, out)
    row, b, _, node, path = data.draw(st.sampled_from(list(case.rows())))
    rows = [row - node + step for step in path]
    plan = build_plan(Forest((Tree.chain(range(len(rows))),)), [case.places[b]])
    shape = case.pool.shape
    one = filled(len(rows), shape.channels)
    backend.conv_verify(case.x[rows], case.weight, alone, case.layer, plan, one)
    assert equal(one[-1], conv_out[row])
    one = filled(len(rows), shape.value_heads, shape.value_dim)
    inputs = (a[rows] for a in (case.q, case.k, case.v, case.decay, case.beta))
    backend.gdn_verify(*inputs, alone, case.layer, plan, one)
    assert equal(one[-1], out[row])


def test_nothing_leaks_from_a_broken_neighbour() -> None:
    """NaN and infinity in one sequence and in one branch stay there."""
    forest = Forest((Tree.build(range(5), [-1, 0, 0, 1, 2]), Tree.chain([1, 2])))
    clean = make_case(forest, 1)
    dirty = make_case(forest, 1)
    dirty.x[[2, 5]], dirty.v[[2, 5]] = np.nan, np.inf
    dirty.pool.state[dirty.places[1].slot] = np.nan
    results = []
    for case in (clean, dirty):
        conv_out, out = filled(*case.x.shape), case.out()
        backend.conv_verify(case.x, case.weight, case.pool, case.layer, case.plan, conv_out)
        backend.gdn_verify(*case.gdn, out)
        results.append((conv_out, out))
    for one, other in zip(*results, strict=True):
        assert equal(one[[0, 1, 3]], other[[0, 1, 3]])
        assert np.isfinite(one).all() and not np.isfinite(other[[2, 4, 5, 6]]).all()


def test_strided_inputs() -> None:
    """Heads as columns of one convolution output, as the model passes them."""
    case = make_case(Forest((Tree.build(range(6), [-1, 0, 0, 1, 2, 2]),)), 4)
    other = copy.deepcopy(case.pool)
    out, wanted = case.out(), case.out()
    n, heads, dim = case.v.shape
    wide = np.concatenate([normal(np.random.default_rng(0), n, 7), case.v.reshape(n, -1)], axis=1)
    v = backend.heads(backend.columns(wide, 7, 7 + heads * dim), heads)
    assert np.shares_memory(v, wide)
    backend.gdn_verify(*case.gdn, wanted)
    backend.gdn_verify(case.q, case.k, v, case.decay, case.beta, other, case.layer, case.plan, out)
    assert equal(out, wanted) and same_pools(other, case.pool) == []


def test_gates() -> None:
    rng = np.random.default_rng(6)
    alpha, beta = normal(rng, 7, 4), normal(rng, 7, 4)
    a, bias = -np.exp(normal(rng, 4)), normal(rng, 4)
    decay, rate = filled(7, 4), filled(7, 4)
    backend.gdn_gates(alpha, beta, a, bias, decay, rate)
    for n, h in np.ndindex(7, 4):
        g = F32(elementary.softplus(F32(alpha[n, h] + bias[h])) * a[h])
        assert equal(np.array(decay[n, h]), np.array(elementary.exp(g)))
        assert equal(np.array(rate[n, h]), np.array(elementary.sigmoid(beta[n, h])))
    assert (decay <= 1).all() and (decay >= 0).all()


# Largest error of the float32 walk against the float64 solve, relative to the largest output,
# over the cases below: 1.5e-7 measured; a wrong mask or gate is off by more than 1e-2.
TOLERANCE = 2e-6


@pytest.mark.parametrize("seed", range(12))
def test_factorised_form_agrees(seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = Tree.build(range(NODES), [-1, *(int(rng.integers(i)) for i in range(1, NODES))])
    case = make_case(Forest((tree,)), seed, pending=False)
    case.decay[...] = rng.uniform(0.3, 1, case.decay.shape)
    out = case.out()
    backend.gdn_verify(*case.gdn, out)
    place = case.places[0]
    state = case.before.state[place.slot, case.layer]
    g = np.log(case.decay.astype(np.float64))
    exact_out, exact_delta = verify_factorised(
        state, case.q, case.k, case.v, g, case.beta, tree.parents
    )
    delta = case.pool.delta[place.slot, 1 - place.pending_bank, case.layer]
    assert np.abs(out - exact_out).max() <= TOLERANCE * np.abs(exact_out).max()
    assert np.abs(delta - exact_delta).max() <= TOLERANCE * np.abs(exact_delta).max()


@given(trees(8))
def test_factorised_form_sees_ancestors_only(tree: Tree) -> None:
    """Changing a node changes its descendants and nobody else."""
    case = make_case(Forest((tree,)), 3, pending=False)
    state = case.before.state[case.places[0].slot, case.layer]
    g = np.log(np.maximum(case.decay, 0.1).astype(np.float64))
    changed = len(tree) // 2
    results = []
    for factor in (1, 3):
        v = case.v.copy()
        v[changed] += factor
        results.append(verify_factorised(state, case.q, case.k, v, g, case.beta, tree.parents)[0])
    for node in range(len(tree)):
        if changed not in naive_path(tree, node):
            assert np.array_equal(results[0][node], results[1][node])
    assert not np.array_equal(results[0][changed], results[1][changed])
