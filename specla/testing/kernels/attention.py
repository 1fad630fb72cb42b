"""Attention, the paged cache, and captured features."""

from __future__ import annotations

import numpy as np

from specla.backends.pools import KvPool, KvShape
from specla.core.paging import PAGE
from specla.core.plan import Place, StepPlan, build_commit_plan, build_plan
from specla.core.topology import Forest
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench
from specla.testing.kernels.recurrence import random_forest, random_paths

LAYERS, LAYER, PER_SLOT = 2, 1, 4
LENGTHS = (0, 1, 50, 63, 64, 65, 127, 128, 150)
"""Committed positions: none, and around the ends of pages."""


def some_pool(b: Bench, slots: int) -> KvPool:
    """A cache whose pages lie in any order; what was never stored is NaN."""
    heads, dim, dtype = b.pick(1, 2, 3), b.pick(5, 32, 64, 128), b.pick("f16", "f32")
    shape = KvShape(slots, LAYERS, slots * PER_SLOT + 1, heads, dim, PAGE * PER_SLOT, dtype)
    pool = b.backend.kv_pool(shape)
    table = b.rng.permutation(shape.pages)[: slots * PER_SLOT].reshape(slots, PER_SLOT)
    b.backend.upload(table.astype(np.int32), into=pool.page_table)
    size = (LAYERS, shape.pages, PAGE, heads, dim)
    with np.errstate(over="ignore"):
        for name in ("key", "value"):
            host = b.values(*size).astype(np.float16 if dtype == "f16" else np.float32)
            b.changing(name, host, into=getattr(pool, name))
    return pool


def some_plan(b: Bench, forest: Forest, slots: int) -> StepPlan:
    order = b.rng.permutation(slots)
    places = [Place(int(order[i]), b.pick(*LENGTHS), 0, (), ()) for i in range(len(forest.trees))]
    return b.plan(build_plan(forest, places))


@kernel_cases.add("kv_write")
def kv_write(b: Bench) -> None:
    forest = random_forest(b, 9)
    slots = len(forest.trees) + 1
    pool, plan = some_pool(b, slots), some_plan(b, forest, slots)
    size = (plan.n_rows, pool.shape.heads, pool.shape.head_dim)
    b.backend.kv_write(b.floats("k", *size), b.floats("v", *size), pool, LAYER, plan)


@kernel_cases.add("attention")
def attention(b: Bench) -> None:
    forest = random_forest(b, b.pick(9, 9, 40))
    slots = len(forest.trees) + 1
    pool, plan = some_pool(b, slots), some_plan(b, forest, slots)
    size = (plan.n_rows, pool.shape.heads * b.pick(1, 3, 4, 6), pool.shape.head_dim)
    scale = pool.shape.head_dim**-0.5
    b.backend.attention(b.floats("q", *size), pool, LAYER, plan, scale, b.result("out", *size))


@kernel_cases.add("kv_move")
def kv_move(b: Bench) -> None:
    pool = some_pool(b, 3)
    slots = b.rng.permutation(3)[: b.pick(1, 2, 3)]
    moves = random_paths(b, len(slots), 40)
    items = [(int(s), b.pick(*LENGTHS), m) for s, m in zip(slots, moves, strict=True)]
    b.backend.kv_move(pool, b.plan(build_commit_plan(items)))


@kernel_cases.add("feature_write")
def feature_write(b: Bench) -> None:
    forest, d_model = random_forest(b, 9), b.pick(5, 32, 64)
    slots = len(forest.trees) + 1
    pool = b.backend.feature_pool((0, 3, 1), slots, 200, d_model)
    b.changing("features", b.values(slots, 200, 3, d_model), into=pool.rows)
    plan = some_plan(b, forest, slots)
    b.backend.feature_write(b.floats("x", plan.n_rows, d_model), pool, b.pick(0, 1, 2), plan)


@kernel_cases.add("feature_move")
def feature_move(b: Bench) -> None:
    d_model = b.pick(5, 32, 64)
    pool = b.backend.feature_pool((0, 3), 3, 200, d_model)
    b.changing("features", b.values(3, 200, 2, d_model), into=pool.rows)
    slots = b.rng.permutation(3)[: b.pick(1, 2, 3)]
    moves = random_paths(b, len(slots), 40)
    items = [(int(s), b.pick(0, 50, 150), m) for s, m in zip(slots, moves, strict=True)]
    b.backend.feature_move(pool, b.plan(build_commit_plan(items)))
