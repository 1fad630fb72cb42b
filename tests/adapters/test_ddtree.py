"""The ddtree adapter on drafters made of tables."""

from __future__ import annotations

import math

import numpy as np
import pytest
from adapter_views import paths, view
from block_trees import assert_is, best_paths, bound, propose, tempered
from fake_drafter import FakeDrafter, FakeSelector, log_softmax, random_drafter
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.adapters.base import parse_options
from specla.adapters.ddtree import DdtreeAdapter, DdtreeOptions
from specla.core.proposal import Proposal
from specla.errors import OptionError

limits = st.fixed_dictionaries({"budget": st.integers(1, 30), "max_depth": st.integers(1, 4)})
trees = st.fixed_dictionaries(
    {
        "tau": st.sampled_from([0.0, 1.0, 3.0, 6.0, math.inf]),
        "top_k": st.integers(1, 9),
        "chain_seed": st.booleans(),
    }
)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), trees, limits, st.sampled_from([1.0, 0.6, 1.7]))
def test_the_best_paths_through_the_rows(
    seed: int, tree: dict[str, float], limit: dict[str, int], temperature: float
) -> None:
    drafter = random_drafter(seed)
    adapter = bound(DdtreeAdapter, drafter, temperature=temperature, **tree)
    rows = min(3, limit["max_depth"], limit["budget"])
    expected = best_paths(
        lambda path: tempered(drafter.logits[len(path)], int(tree["top_k"]), temperature),
        int(tree["top_k"]),
        limit["budget"],
        rows,
        tree["tau"],
        seed=bool(tree["chain_seed"]),
    )
    assert_is(propose(adapter, drafter, **limit), expected)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), trees, limits, st.sampled_from([1.0, 0.6]))
def test_conditional_rows_are_drafted_after_the_exact_prefix(
    seed: int, tree: dict[str, float], limit: dict[str, int], temperature: float
) -> None:
    drafter = random_drafter(seed)
    adapter = bound(DdtreeAdapter, drafter, temperature=temperature, conditional=True, **tree)
    expected = best_paths(
        lambda path: tempered(drafter.row(len(path), path), int(tree["top_k"]), temperature),
        int(tree["top_k"]),
        limit["budget"],
        min(3, limit["max_depth"], limit["budget"]),
        tree["tau"],
        seed=bool(tree["chain_seed"]),
    )
    proposal = propose(adapter, drafter, **limit)
    assert_is(proposal, expected)
    assert len(set(drafter.prefixes)) == len(drafter.prefixes)
    assert all(0 < len(prefix) < 3 for prefix in drafter.prefixes)
    inner = {path[:-1] for path in paths(proposal)} - {()}
    assert inner <= set(drafter.prefixes)


def test_a_markov_head_is_left_alone() -> None:
    with_heads = random_drafter(7)
    without = FakeDrafter(with_heads.logits)
    one = propose(bound(DdtreeAdapter, with_heads), with_heads)
    assert one == propose(bound(DdtreeAdapter, without), without)


@pytest.mark.parametrize("seed", range(5))
def test_a_selector_scores_each_branch_by_its_own_token(seed: int) -> None:
    drafter = random_drafter(seed)
    table = np.random.default_rng(seed).normal(size=(6, 6)).astype(np.float32) * 3
    drafter.selector = FakeSelector(table, top_k=4)
    proposal = propose(bound(DdtreeAdapter, drafter, top_k=3), drafter, root=2, budget=12)

    def row(path: tuple[int, ...]) -> np.ndarray:
        logits = drafter.logits[len(path)] + table[(2, *path)[-1]]
        out = np.argsort(-drafter.logits[len(path)], kind="stable")[4:]
        logits[out] = -np.inf
        return log_softmax(logits)

    assert_is(proposal, best_paths(row, 3, 12, 3, 6.0, seed=False))
    plain = bound(DdtreeAdapter, drafter, top_k=3, selector=False)
    assert propose(plain, drafter, root=2, budget=12) != proposal
    assert [k for _, _, k in drafter.asked] == [4, 3]


def test_a_budget_within_the_block_is_spent_best_first_too() -> None:
    """No special case; only a seed makes it a chain."""
    drafter = random_drafter(3, spread=0.1, heads=False)
    bushy = propose(bound(DdtreeAdapter, drafter), drafter, budget=3)
    assert list(bushy.parents) == [-1, -1, -1]
    chain = propose(bound(DdtreeAdapter, drafter, chain_seed=True), drafter, budget=3)
    assert list(chain.parents) == [-1, 0, 1]


def test_no_more_rows_are_drafted_than_can_be_used() -> None:
    drafter = random_drafter(1)
    adapter = bound(DdtreeAdapter, drafter)
    for budget, max_depth in ((22, 9), (2, 9), (22, 1)):
        propose(adapter, drafter, budget=budget, max_depth=max_depth)
    assert [depth for _, depth, _ in drafter.asked] == [3, 2, 1]
    assert propose(adapter, drafter, budget=0) == Proposal()
    assert propose(adapter, drafter, max_depth=0) == Proposal()
    assert len(drafter.asked) == 3


def test_views_are_drafted_one_by_one_and_closed_by_key() -> None:
    drafter = random_drafter(4)
    adapter = bound(DdtreeAdapter, drafter)
    views = [view([1, 2], key=7), view([3, 4], key=9, budget=2)]
    first, second = adapter.propose(views)
    assert [key for key, _, _ in drafter.asked] == [7, 9]
    assert second == propose(adapter, drafter, root=4, budget=2)
    assert first == propose(adapter, drafter, root=2)
    adapter.close(views[0])
    assert drafter.closed == [7]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tau", -1.0),
        ("tau", math.nan),
        ("top_k", 0),
        ("temperature", 0.0),
        ("temperature", math.inf),
    ],
)
def test_options_out_of_range(key: str, value: float) -> None:
    with pytest.raises(OptionError, match=f"'ddtree': option {key} is"):
        DdtreeOptions("a draft.gguf", **{key: value})


def test_options_from_the_command_line() -> None:
    given_options = {"draft": "d.gguf", "tau": "inf", "chain_seed": "yes", "top_k": "8"}
    parsed = parse_options("ddtree", DdtreeOptions, given_options)
    assert parsed == DdtreeOptions("d.gguf", tau=math.inf, chain_seed=True, top_k=8)
    with pytest.raises(OptionError, match="needs the option draft"):
        parse_options("ddtree", DdtreeOptions, {})
