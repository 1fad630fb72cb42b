"""Plans on the device, as every backend has them by default: the same integers, memory kept."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from support.forests import forests
from support.plans import commit_plan, same, step_plan

from specla.backends.numpy.backend import NumpyBackend
from specla.backends.plans import PlanBuffers
from specla.core.topology import Forest, Tree


@given(st.lists(st.tuples(forests(), st.integers(0, 3)), min_size=1, max_size=5))
def test_plans_of_any_sizes_after_each_other(cases: list[tuple[Forest, int]]) -> None:
    buffers = PlanBuffers(NumpyBackend())
    for forest, layers in cases:
        plan = step_plan(forest, layers)
        assert same(buffers.upload(plan), plan)


def test_memory_is_kept_and_of_each_kinds_own() -> None:
    buffers = PlanBuffers(NumpyBackend())
    plan = step_plan(Forest((Tree.chain([1, 2, 3]),)))
    uploaded = buffers.upload(plan)
    commit = commit_plan((0, 2))
    moves = buffers.upload(commit)
    assert same(uploaded, plan) and same(moves, commit)
    again = buffers.upload(step_plan(Forest((Tree.chain([4, 5]),))))
    assert np.shares_memory(again.tokens, uploaded.tokens)
    assert uploaded.tokens.tolist() == [4, 5, 3]
    assert not np.shares_memory(moves.slot, again.slot)


def test_another_number_of_sequences_gets_other_memory() -> None:
    """The rows of an array by layer are as long as there are sequences."""
    buffers = PlanBuffers(NumpyBackend())
    for n in (1, 2, 1, 3):
        plan = step_plan(Forest((Tree.lone(1),) * n), layers=3)
        uploaded = buffers.upload(plan)
        assert same(uploaded, plan) and uploaded.pending_state.flags.c_contiguous
