"""Batched forests through the kernels of a step and of its commit, interpreted.

Several sequences with slots out of order, mixed banks, other pending counts in each layer; lone
roots beside bushes; long chains; trees wider than a tile. Heads have widths that are no powers of
two and no multiples of a tile, and fewer of them are keys than values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.pools import KvPool, KvShape, RecurrentPool, RecurrentShape  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.core.banks import Banks, accept  # noqa: E402
from specla.core.paging import PAGE  # noqa: E402
from specla.core.plan import (  # noqa: E402
    CommitPlan,
    Place,
    StepPlan,
    build_commit_plan,
    build_plan,
)
from specla.core.topology import Forest, Tree  # noqa: E402
from specla.testing.forests import random_tree  # noqa: E402
from specla.testing.kernels.bench import Bench, compare_one  # noqa: E402

pytestmark = MARKS

LAYERS, LAYER = 2, 1
KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, CONV_WIDTH = 2, 4, 12, 20, 4
HEADS, KV_HEADS, HEAD_DIM, PER_SLOT = 2, 1, 20, 4
WIDE = 70
"""Nodes: more than a tile of rows (64) of any kernel."""


def bush(children: int) -> Tree:
    """A root, its children, and one grandchild below the last of them."""
    return Tree.build(range(children + 2), [-1] + [0] * children + [children])


def comb(length: int) -> Tree:
    """A spine, and a leaf beside each of its nodes, which comes first."""
    parents = [-1]
    for tooth in range(length):
        spine = 2 * tooth
        parents += [spine, spine]
    return Tree.build(range(len(parents)), parents)


def batch() -> Forest:
    """Lone roots among trees of every form."""
    rng = np.random.default_rng(5)
    return Forest(
        (
            Tree.build([7], [-1]),
            bush(8),
            Tree.chain(range(5)),
            random_tree(rng, 12),
            comb(4),
            Tree.build([3], [-1]),
        )
    )


FORESTS: dict[str, Callable[[], Forest]] = {
    "a batch": batch,
    "a long chain": lambda: Forest((Tree.chain(range(WIDE)),)),
    "a wide bush beside a lone root": lambda: Forest((bush(WIDE), Tree.build([1], [-1]))),
    "a deep comb": lambda: Forest((comb(20),)),
}


def places(rng: np.random.Generator, forest: Forest, slots: int, nodes: int) -> list[Place]:
    """Every sequence elsewhere, with banks and pending counts of its own."""
    order = rng.permutation(slots)

    def counts() -> tuple[int, ...]:
        return tuple(int(count) for count in rng.integers(0, nodes + 1, LAYERS))

    committed = rng.permutation([0, 1, 63, 64, 65, 127, 100])
    return [
        Place(int(order[b]), int(committed[b]), b % 2, counts(), counts())
        for b in range(len(forest.trees))
    ]


def step(b: Bench, forest: Forest) -> tuple[StepPlan, RecurrentPool, int]:
    """A plan, a pool full of numbers, and its slots."""
    slots, nodes = len(forest.trees) + 2, max(len(tree) for tree in forest.trees)
    shape = RecurrentShape(
        *(slots, LAYERS, nodes, KEY_HEADS, VALUE_HEADS, KEY_DIM, VALUE_DIM, CONV_WIDTH)
    )
    pool = b.backend.recurrent_pool(shape)
    for name in ("state", "window", "key", "delta", "decay", "inputs"):
        array = getattr(pool, name)
        b.changing(name, b.values(*array.shape), into=array)
    return b.plan(build_plan(forest, places(b.rng, forest, slots, nodes))), pool, slots


def cache(b: Bench, slots: int) -> KvPool:
    """A cache full of numbers whose pages lie in any order."""
    shape = KvShape(
        *(slots, LAYERS, slots * PER_SLOT + 1, KV_HEADS, HEAD_DIM, PAGE * PER_SLOT, "f16")
    )
    pool = b.backend.kv_pool(shape)
    table = b.rng.permutation(shape.pages)[: slots * PER_SLOT].reshape(slots, PER_SLOT)
    b.backend.upload(table.astype(np.int32), into=pool.page_table)
    size = (LAYERS, shape.pages, PAGE, KV_HEADS, HEAD_DIM)
    with np.errstate(over="ignore"):
        for name in ("key", "value"):
            b.changing(name, b.values(*size).astype(np.float16), into=getattr(pool, name))
    return pool


def recurrence(b: Bench, forest: Forest) -> None:
    """What a recurrent layer does with a step; then the rest is folded, as a flush would."""
    plan, pool, _ = step(b, forest)
    n, channels = plan.n_rows, pool.shape.channels
    x, weight = b.floats("x", n, channels), b.floats("weight", CONV_WIDTH, channels)
    b.backend.conv_verify(x, weight, pool, LAYER, plan, b.result("convolved", n, channels))
    q, k = (b.floats(name, n, KEY_HEADS, KEY_DIM) for name in ("q", "k"))
    v = b.floats("v", n, VALUE_HEADS, VALUE_DIM)
    decay, rate = (
        b.input(name, b.rng.uniform(0, 1, (n, VALUE_HEADS)).astype(np.float32))
        for name in ("decay", "rate")
    )
    out = b.result("out", n, VALUE_HEADS, VALUE_DIM)
    b.backend.gdn_verify(q, k, v, decay, rate, pool, LAYER, plan, out)
    b.backend.fold_window(pool, 0, plan)
    b.backend.fold_state(pool, 0, plan)


def attention(b: Bench, forest: Forest) -> None:
    """The rows of a step are written to the cache and see what they may."""
    plan, _, slots = step(b, forest)
    pool, n = cache(b, slots), plan.n_rows
    k, v = (b.floats(name, n, KV_HEADS, HEAD_DIM) for name in ("k", "v"))
    b.backend.kv_write(k, v, pool, LAYER, plan)
    q, out = b.floats("q", n, HEADS, HEAD_DIM), b.result("out", n, HEADS, HEAD_DIM)
    b.backend.attention(q, pool, LAYER, plan, HEAD_DIM**-0.5, out)


def commit_of(b: Bench, forest: Forest, slots: int) -> CommitPlan:
    """Every tree's last node is accepted, where its path isn't the beginning of the tree."""
    order = b.rng.permutation(slots)
    items = []
    for i, tree in enumerate(forest.trees):
        move = accept(Banks(i % 2, 1), tuple(tree.path_to(len(tree) - 1)))
        if move.gather:
            items.append((int(order[i]), 10 * i + 3, move))
    return b.plan(build_commit_plan(items))


def commit(b: Bench, forest: Forest) -> None:
    """What a commit copies: factors, rows of the cache and of captured features."""
    _, pool, slots = step(b, forest)
    features = b.backend.feature_pool((0, 1), slots, PAGE * PER_SLOT, 5)
    b.changing("features", b.values(slots, PAGE * PER_SLOT, 2, 5), into=features.rows)
    kv, plan = cache(b, slots), commit_of(b, forest, slots)
    assert plan.n_sequences
    b.backend.gather(pool, plan)
    b.backend.kv_move(kv, plan)
    b.backend.feature_move(features, plan)


def check(case: Callable[[Bench, Forest], None], forest: Forest, mood: str) -> None:
    compare_one(case.__name__, lambda b: case(b, forest), TritonBackend(), NumpyBackend(), 3, mood)


@pytest.mark.parametrize("forest", FORESTS)
@pytest.mark.parametrize("case", [recurrence, attention])
def test_a_step(case: Callable[[Bench, Forest], None], forest: str) -> None:
    check(case, FORESTS[forest](), "plain")


@pytest.mark.parametrize("mood", ["signed zeros", "hostile"])
@pytest.mark.parametrize("case", [recurrence, attention])
def test_a_step_of_hostile_floats(case: Callable[[Bench, Forest], None], mood: str) -> None:
    check(case, batch(), mood)


@pytest.mark.parametrize("forest", [name for name in FORESTS if name != "a long chain"])
def test_a_commit(forest: str) -> None:
    check(commit, FORESTS[forest](), "hostile")
