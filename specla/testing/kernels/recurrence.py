"""Convolution and gated delta rule over forests, folds, and the gather of a commit."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.pools import RecurrentPool, RecurrentShape
from specla.core.banks import BankMove, Banks
from specla.core.plan import Place, StepPlan, build_commit_plan, build_plan
from specla.core.topology import Forest, Tree
from specla.testing.forests import random_tree
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench

ARRAYS = ("state", "window", "key", "delta", "decay", "inputs")
"""What is compared: all but ``boundary``, scratch of one call that each backend lays out itself."""
LAYERS, LAYER = 2, 1


def random_forest(b: Bench, nodes: int) -> Forest:
    """One to four trees of up to ``nodes`` nodes: lone roots, chains, bushes."""
    trees = []
    for _ in range(b.pick(1, 1, 2, 4)):
        size, chainlike = int(b.rng.integers(1, nodes + 1)), b.pick(0.0, 0.4, 1.0)
        trees.append(random_tree(b.rng, size, 40, chainlike=chainlike))
    return Forest(tuple(trees))


def _shape(b: Bench, slots: int, nodes: int) -> RecurrentShape:
    key_heads = b.pick(1, 2, 3)
    return RecurrentShape(
        slots=slots,
        layers=LAYERS,
        nodes=nodes,
        key_heads=key_heads,
        value_heads=key_heads * b.pick(1, 2),
        key_dim=b.pick(5, 32, 64, 128),
        value_dim=b.pick(5, 32, 64, 128),
        conv_width=b.pick(1, 2, 4, 5),
    )


def _pool(b: Bench, shape: RecurrentShape) -> RecurrentPool:
    pool = b.backend.recurrent_pool(shape)
    for name in ARRAYS:
        array = getattr(pool, name)
        b.changing(name, b.values(*array.shape), into=array)
    b.backend.poison(pool.boundary)
    return pool


def _plan(b: Bench, forest: Forest, shape: RecurrentShape, pending: bool) -> StepPlan:
    slots = b.rng.permutation(shape.slots)

    def counts() -> tuple[int, ...]:
        # each layer has folded what it has folded: the counts differ
        return tuple(int(c) if pending else 0 for c in b.rng.integers(0, shape.nodes + 1, LAYERS))

    places = [
        Place(int(slots[i]), 10 * i, int(b.rng.integers(2)), counts(), counts())
        for i in range(len(forest.trees))
    ]
    return b.plan(build_plan(forest, places))


def _step(b: Bench, *, chains: bool = False) -> tuple[RecurrentShape, RecurrentPool, StepPlan]:
    nodes = 9
    forest = random_forest(b, nodes)
    if chains:
        forest = Forest(tuple(Tree.chain(tree.tokens) for tree in forest.trees))
    shape = _shape(b, len(forest.trees) + 1, nodes)
    plan = _plan(b, forest, shape, pending=not chains and b.pick(True, True, False))
    return shape, _pool(b, shape), plan


def _convolution(b: Bench, shape: RecurrentShape, plan: StepPlan) -> tuple[Any, Any, Any]:
    x = b.floats("x", plan.n_rows, shape.channels)
    weight = b.floats("weight", shape.conv_width, shape.channels)
    return x, weight, b.result("out", plan.n_rows, shape.channels)


def _delta_rule(
    b: Bench, shape: RecurrentShape, plan: StepPlan
) -> tuple[tuple[Any, Any, Any, Any, Any], Any]:
    n, heads = plan.n_rows, (plan.n_rows, shape.value_heads)
    q, k = (b.floats(name, n, shape.key_heads, shape.key_dim) for name in ("q", "k"))
    v = b.strided("v", *heads, shape.value_dim)
    decay, beta = (
        b.input(name, b.rng.uniform(0, 1, heads).astype(np.float32)) for name in ("decay", "beta")
    )
    return (q, k, v, decay, beta), b.result("out", *heads, shape.value_dim)


@kernel_cases.add("conv_verify")
def conv_verify(b: Bench) -> None:
    shape, pool, plan = _step(b)
    x, weight, out = _convolution(b, shape, plan)
    b.backend.conv_verify(x, weight, pool, LAYER, plan, out)


@kernel_cases.add("conv_prefill")
def conv_prefill(b: Bench) -> None:
    shape, pool, plan = _step(b, chains=True)
    x, weight, out = _convolution(b, shape, plan)
    b.backend.conv_prefill(x, weight, pool, LAYER, plan, out)


@kernel_cases.add("gdn_verify")
def gdn_verify(b: Bench) -> None:
    shape, pool, plan = _step(b)
    inputs, out = _delta_rule(b, shape, plan)
    b.backend.gdn_verify(*inputs, pool, LAYER, plan, out)


@kernel_cases.add("gdn_prefill")
def gdn_prefill(b: Bench) -> None:
    shape, pool, plan = _step(b, chains=True)
    inputs, out = _delta_rule(b, shape, plan)
    b.backend.gdn_prefill(*inputs, pool, LAYER, plan, out)


@kernel_cases.add("fold_state")
def fold_state(b: Bench) -> None:
    _, pool, plan = _step(b)
    b.backend.fold_state(pool, LAYER, plan)


@kernel_cases.add("fold_window")
def fold_window(b: Bench) -> None:
    _, pool, plan = _step(b)
    b.backend.fold_window(pool, LAYER, plan)


def random_paths(b: Bench, sequences: int, nodes: int) -> list[BankMove]:
    """Accepted paths of a commit: ascending nodes, no prefix of the node order."""
    moves = []
    for _ in range(sequences):
        source = int(b.rng.integers(2))
        size = int(b.rng.integers(1, nodes))
        path = tuple(int(i) for i in np.sort(b.rng.permutation(nodes)[:size]))
        steps = tuple((node, i) for i, node in enumerate(path) if node != i)
        moves.append(BankMove(Banks(1 - source, len(path)), source, path, steps))
    return moves


@kernel_cases.add("gather")
def gather(b: Bench) -> None:
    shape = _shape(b, 3, 9)
    pool = _pool(b, shape)
    slots = b.rng.permutation(3)[: b.pick(1, 2, 3)]
    moves = random_paths(b, len(slots), shape.nodes)
    items = [(int(slot), 20, move) for slot, move in zip(slots, moves, strict=True)]
    b.backend.gather(pool, b.plan(build_commit_plan(items)))
