"""The flat arrays of a step: worked by hand, and against naive ancestors."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.forests import forests, naive_path

from specla.core.banks import Banks, accept
from specla.core.plan import Place, StepPlan, build_commit_plan, build_plan, map_arrays
from specla.core.topology import Forest, Tree


def place(slot: int, committed: int, bank: int = 0, state: Any = (0,), window: Any = (0,)) -> Place:
    return Place(slot, committed, bank, tuple(state), tuple(window))


def test_two_sequences_by_hand() -> None:
    # sequence 0: a tree of 5 behind 10 positions; sequence 1: a chain of 2 behind 100
    forest = Forest((Tree.build([5, 6, 7, 8, 9], [-1, 0, 0, 1, 2]), Tree.chain([3, 4])))
    plan = build_plan(
        forest,
        [place(2, 10, 1, (3, 0, 3), (3, 3, 0)), place(0, 100, 0, (0, 1, 1), (1, 0, 1))],
    )
    assert plan.tokens.tolist() == [5, 6, 7, 8, 9, 3, 4]
    assert plan.sequence.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert plan.parent.tolist() == [-1, 0, 0, 1, 2, -1, 5]
    # a position is a depth, a cache row an index: they part where siblings are
    assert plan.position.tolist() == [10, 11, 11, 12, 12, 100, 101]
    assert plan.kv_row.tolist() == [10, 11, 12, 13, 14, 100, 101]
    assert plan.slot.tolist() == [2, 0]
    assert plan.committed.tolist() == [10, 100]
    assert plan.pending_bank.tolist() == [1, 0]
    assert plan.row_offset.tolist() == [0, 5, 7]
    assert plan.pending_state.tolist() == [[3, 0], [0, 1], [3, 1]]
    assert plan.pending_window.tolist() == [[3, 1], [3, 0], [0, 1]]
    # chains: [0 1 3] and [5 6] in wave 0, [2 4] in wave 1
    assert plan.chain_rows.tolist() == [0, 1, 3, 5, 6, 2, 4]
    assert plan.chain_offset.tolist() == [0, 3, 5, 7]
    assert plan.chain_sequence.tolist() == [0, 1, 0]
    assert plan.chain_source.tolist() == [-1, -1, 0]
    assert plan.boundary_of_row.tolist() == [0, -1, -1, -1, -1, -1, -1]
    assert plan.wave_offset.tolist() == [0, 2, 3]
    assert (plan.n_rows, plan.n_sequences) == (7, 2)
    assert plan.counts.tolist() == [7, 2, len(plan.chain_sequence), 2]
    assert plan.path_start.tolist() == [0, 0, 5, 0, 5, 3, 3]
    assert plan.paths.tolist() == [10, 11, 13, 100, 101, 10, 12, 14]


def test_chain_rows_are_positions() -> None:
    plan = build_plan(Forest((Tree.chain([1, 2, 3]),)), [place(0, 7)])
    assert plan.position.tolist() == plan.kv_row.tolist() == plan.paths.tolist() == [7, 8, 9]


def test_no_recurrent_layers() -> None:
    plan = build_plan(Forest((Tree.lone(1), Tree.lone(2))), [place(0, 0, 0, (), ())] * 2)
    assert plan.pending_state.shape == plan.pending_window.shape == (0, 2)


@st.composite
def planned(draw: st.DrawFn) -> tuple[Forest, list[Place], StepPlan]:
    forest = draw(forests())
    layers = draw(st.integers(0, 3))
    places = []
    for b in range(len(forest.trees)):
        counts = [draw(st.tuples(*[st.integers(0, 5)] * layers)) for _ in range(2)]
        places.append(place(9 - b, draw(st.integers(0, 300)), draw(st.integers(0, 1)), *counts))
    return forest, places, build_plan(forest, places)


@given(planned())
def test_rows_see_their_own_ancestors(case: tuple[Forest, list[Place], StepPlan]) -> None:
    forest, places, plan = case
    row = 0
    for b, (tree, where) in enumerate(zip(forest.trees, places, strict=True)):
        for node in range(len(tree)):
            path = naive_path(tree, node)
            assert plan.sequence[row] == b
            assert plan.position[row] == where.committed + len(path) - 1
            assert plan.kv_row[row] == where.committed + node
            start = plan.path_start[row]
            visible = plan.paths[start : start + plan.position[row] - where.committed + 1]
            assert visible.tolist() == [where.committed + n for n in path]
            row += 1
    assert row == plan.n_rows


@given(planned())
def test_pending_counts_are_by_layer_then_sequence(
    case: tuple[Forest, list[Place], StepPlan],
) -> None:
    _, places, plan = case
    for b, where in enumerate(places):
        assert plan.pending_state[:, b].tolist() == list(where.pending_state)
        assert plan.pending_window[:, b].tolist() == list(where.pending_window)
        assert (plan.slot[b], plan.pending_bank[b]) == (where.slot, where.pending_bank)


@given(planned())
def test_arrays_are_contiguous_int32_and_map_to_a_device(
    case: tuple[Forest, list[Place], StepPlan],
) -> None:
    plan = case[2]
    arrays = {f.name for f in fields(plan) if isinstance(getattr(plan, f.name), np.ndarray)}
    for name in arrays:
        array = getattr(plan, name)
        assert array.dtype == np.int32 and array.flags.c_contiguous, name
    mapped = map_arrays(plan, lambda name, array: (name, array.shape))
    for f in fields(plan):
        was, now = getattr(plan, f.name), getattr(mapped, f.name)
        assert now == ((f.name, was.shape) if f.name in arrays else was)
    assert len(arrays) == 20


def test_commit_plan_by_hand() -> None:
    # sequence 0 keeps nodes 0, 2, 5 behind 10 positions; sequence 1 keeps 0, 1, 4 behind 100
    items = [
        (3, 10, accept(Banks(1, 2), (0, 2, 5))),
        (1, 100, accept(Banks(0, 0), (0, 1, 4))),
    ]
    plan = build_commit_plan(items)
    assert plan.slot.tolist() == [3, 1]
    assert plan.source_bank.tolist() == [0, 1]  # where the verify wrote
    assert plan.node_offset.tolist() == [0, 3, 6]
    assert plan.nodes.tolist() == [0, 2, 5, 0, 1, 4]
    assert plan.move_offset.tolist() == [0, 2, 3]
    assert plan.move_from.tolist() == [12, 15, 104]
    assert plan.move_to.tolist() == [11, 12, 102]
    assert plan.n_sequences == 2
    for name in ("slot", "source_bank", "node_offset", "nodes", "move_offset", "move_from"):
        assert getattr(plan, name).dtype == np.int32
