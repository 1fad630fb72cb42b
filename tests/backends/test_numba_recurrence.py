"""Convolution and gated delta rule of the compiled backend: outputs and every pool array."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numba_values import moods, seeds, strided, values
from support.arrays import equal, filled
from support.forests import forests

from specla.backends.numba.backend import NumbaBackend
from specla.backends.numpy.backend import NumpyBackend
from specla.backends.pools import RecurrentPool, RecurrentShape
from specla.core.plan import Place, StepPlan, build_plan
from specla.core.topology import Forest, Tree


class Scattered(NumbaBackend):
    """Does the units one at a time, last first: they must not depend on each other."""

    def _launch(self, kernel: Any, units: int, *arguments: Any, share: bool = False) -> None:
        for unit in reversed(range(units)):
            kernel(*arguments, unit, unit + 1)


REFERENCE, COMPILED, SCATTERED = NumpyBackend(), NumbaBackend(), Scattered()
compiled = st.sampled_from([COMPILED, SCATTERED])
ARRAYS = ("state", "window", "key", "delta", "decay", "inputs")
"""All but ``boundary``, which is scratch of one call, laid out as each backend likes."""
LAYERS = 2
key_dims = st.one_of(st.integers(1, 40), st.sampled_from([16, 32, 64, 96, 128, 256]))
value_dims = st.one_of(key_dims, st.sampled_from([128, 130, 160]))  # strips end at 128


@st.composite
def shapes(draw: st.DrawFn, slots: int, nodes: int) -> RecurrentShape:
    key_heads = draw(st.integers(1, 3))
    return RecurrentShape(
        slots=slots,
        layers=LAYERS,
        nodes=nodes,
        key_heads=key_heads,
        value_heads=key_heads * draw(st.integers(1, 2)),
        key_dim=draw(key_dims),
        value_dim=draw(value_dims),
        conv_width=draw(st.integers(1, 5)),
    )


def make_pool(rng: np.random.Generator, mood: str, shape: RecurrentShape) -> RecurrentPool:
    pool = REFERENCE.recurrent_pool(shape)
    for name in ARRAYS:
        array = getattr(pool, name)
        array[...] = values(rng, mood, *array.shape)
    pool.boundary[...] = np.nan
    return pool


def make_plan(
    rng: np.random.Generator, forest: Forest, shape: RecurrentShape, pending: bool
) -> StepPlan:
    slots = rng.permutation(shape.slots)

    def counts() -> tuple[int, ...]:
        return tuple(int(c) if pending else 0 for c in rng.integers(0, shape.nodes + 1, LAYERS))

    places = [
        Place(int(slots[b]), 10 * b, int(rng.integers(2)), counts(), counts())
        for b in range(len(forest.trees))
    ]
    return build_plan(forest, places)


def inputs(
    rng: np.random.Generator, mood: str, n: int, shape: RecurrentShape
) -> tuple[np.ndarray, ...]:
    """q, k, v, decay, beta."""
    q, k = (strided(rng, values(rng, mood, n, shape.key_heads, shape.key_dim)) for _ in range(2))
    v = strided(rng, values(rng, mood, n, shape.value_heads, shape.value_dim))
    decay = rng.uniform(0, 1, (n, shape.value_heads)).astype(np.float32)
    beta = rng.uniform(0, 1, (n, shape.value_heads)).astype(np.float32)
    if mood == "hostile":
        decay = values(rng, mood, n, shape.value_heads)
    return q, k, v, decay, beta


def same(found: RecurrentPool, wanted: RecurrentPool) -> list[str]:
    return [n for n in ARRAYS if not equal(getattr(found, n), getattr(wanted, n))]


def run_verify(
    rng: np.random.Generator,
    mood: str,
    forest: Forest,
    shape: RecurrentShape,
    pending: bool,
    compiled: NumbaBackend = COMPILED,
) -> None:
    plan = make_plan(rng, forest, shape, pending)
    pool = make_pool(rng, mood, shape)
    other = copy.deepcopy(pool)
    x = strided(rng, values(rng, mood, plan.n_rows, shape.channels))
    weight = values(rng, mood, shape.conv_width, shape.channels)
    tokens = inputs(rng, mood, plan.n_rows, shape)
    results = []
    for backend, mine in ((compiled, pool), (REFERENCE, other)):
        conv_out = filled(plan.n_rows, shape.channels)
        out = filled(plan.n_rows, shape.value_heads, shape.value_dim)
        backend.conv_verify(x, weight, mine, 1, plan, conv_out)
        backend.gdn_verify(*tokens, mine, 1, plan, out)
        results.append((conv_out, out))
    assert equal(results[0][0], results[1][0]), "conv"
    assert equal(results[0][1], results[1][1]), "gdn"
    assert same(pool, other) == []


@settings(max_examples=60)
@given(forest=forests(4, 14), data=st.data(), mood=moods, pending=st.booleans(), seed=seeds)
def test_verify(forest: Forest, data: st.DataObject, mood: str, pending: bool, seed: int) -> None:
    shape = data.draw(shapes(len(forest.trees) + 1, 14))
    backend = data.draw(compiled)
    run_verify(np.random.default_rng(seed), mood, forest, shape, pending, backend)


@settings(max_examples=12)
@given(forest=forests(2, 14), mood=moods, pending=st.booleans(), seed=seeds)
def test_usual_head(forest: Forest, mood: str, pending: bool, seed: int) -> None:
    """Key and value dimension of the models that there are."""
    shape = RecurrentShape(len(forest.trees), LAYERS, 14, 2, 4, 128, 128, 4)
    run_verify(np.random.default_rng(seed), mood, forest, shape, pending)


@settings(max_examples=8)
@given(forest=forests(8, 64), mood=moods, seed=seeds)
def test_large_forests(forest: Forest, mood: str, seed: int) -> None:
    shape = RecurrentShape(len(forest.trees), LAYERS, 64, 1, 2, 16, 33, 4)
    run_verify(np.random.default_rng(seed), mood, forest, shape, True)


@settings(max_examples=60)
@given(forest=forests(4, 14), data=st.data(), mood=moods, seed=seeds)
def test_prefill(forest: Forest, data: st.DataObject, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    chains = Forest(tuple(Tree.chain(tree.tokens) for tree in forest.trees))
    shape, chosen = data.draw(shapes(len(chains.trees) + 1, 14)), data.draw(compiled)
    plan, pool = make_plan(rng, chains, shape, False), make_pool(rng, mood, shape)
    other = copy.deepcopy(pool)
    x = strided(rng, values(rng, mood, plan.n_rows, shape.channels))
    weight = values(rng, mood, shape.conv_width, shape.channels)
    tokens = inputs(rng, mood, plan.n_rows, shape)
    results = []
    for backend, mine in ((chosen, pool), (REFERENCE, other)):
        conv_out = filled(plan.n_rows, shape.channels)
        out = filled(plan.n_rows, shape.value_heads, shape.value_dim)
        backend.conv_prefill(x, weight, mine, 1, plan, conv_out)
        backend.gdn_prefill(*tokens, mine, 1, plan, out)
        results.append((conv_out, out))
    assert equal(results[0][0], results[1][0]), "conv"
    assert equal(results[0][1], results[1][1]), "gdn"
    assert same(pool, other) == []


@settings(max_examples=40)
@given(forest=forests(4, 3), data=st.data(), mood=moods, seed=seeds)
def test_folds(forest: Forest, data: st.DataObject, mood: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = data.draw(shapes(len(forest.trees) + 1, data.draw(st.integers(3, 64))))
    chosen = data.draw(compiled)
    plan, pool = make_plan(rng, forest, shape, True), make_pool(rng, mood, shape)
    other = copy.deepcopy(pool)
    for backend, mine in ((chosen, pool), (REFERENCE, other)):
        backend.fold_window(mine, 1, plan)
        backend.fold_state(mine, 1, plan)
    assert same(pool, other) == []
