"""Trees against the definition by a plain heap, and against looking at every path."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specla.core.proposal import Proposal
from specla.core.trees import Expand, Node, TreeShape, best_first
from specla.errors import ProposalError

ROOT = 999

Entry = tuple[int, int, float]
"""Token, parent, log-probability."""

Children = Callable[[tuple[int, ...]], list[tuple[int, float]]]
"""The (token, log-probability) pairs that may follow a path, best first."""

# few values, so that equal scores are common; sums of them are exact
values = st.sampled_from([0.0, -0.25, -0.5, -1.0, -1.0, -2.0, -4.0, -math.inf])
shapes = st.builds(
    TreeShape,
    budget=st.integers(0, 30),
    max_depth=st.integers(0, 5),
    tau=st.sampled_from([0.0, 0.5, 1.0, 3.0, 6.0, math.inf]),
    chain_seed=st.booleans(),
)


def asking(children: Children, asked: list[tuple[int, ...]] | None = None) -> Expand:
    """The same children for the search; the paths it asks for go to ``asked``."""

    def expand(node: Node) -> tuple[list[int], list[float]]:
        path = node.path()
        assert (node.depth, node.token) == (len(path), path[-1] if path else ROOT)
        if asked is not None:
            asked.append(path)
        return [token for token, _ in children(path)], [value for _, value in children(path)]

    return expand


def as_list(proposal: Proposal) -> list[Entry]:
    return list(zip(proposal.tokens, proposal.parents, proposal.log_probs or (), strict=True))


def spine_first(taken: list[Entry]) -> list[Entry]:
    """The nodes as taken, but first the path of best children in the tree."""
    spine = [-1]
    while True:
        children = [i for i, (_, parent, _) in enumerate(taken) if parent == spine[-1]]
        if not children:
            break
        spine.append(min(children))
    order = [*spine, *(i for i in range(len(taken)) if i not in spine)]
    return [(taken[i][0], order.index(taken[i][1]) - 1, taken[i][2]) for i in order[1:]]


def definition(children: Children, shape: TreeShape) -> list[Entry]:
    """Take the first open node in the total order, then open its children."""
    first = [p for _, p in children(()) if p > -math.inf]
    floor = max(first, default=0.0) - shape.tau
    chosen: list[Entry] = []
    heap: list[tuple[float, float, int, int, int, float, int, tuple[int, ...]]] = []

    def open_children(path: tuple[int, ...], q: float, parent: int, on_spine: bool) -> None:
        if len(path) == shape.max_depth:
            return
        for rank, (token, log_prob) in enumerate(children(path)):
            score = q + log_prob
            if score < floor or log_prob == -math.inf:
                continue
            spine = on_spine and rank == 0
            seed = -math.inf if spine and shape.chain_seed else -score
            entry = (seed, len(path) + 1, rank, parent, token, log_prob, spine, (*path, token))
            heapq.heappush(heap, entry)

    open_children((), 0.0, -1, True)
    scores: list[float] = []
    while heap and len(chosen) < shape.budget:
        _, _, _, parent, token, log_prob, spine, path = heapq.heappop(heap)
        scores.append((scores[parent] if parent >= 0 else 0.0) + log_prob)
        chosen.append((token, parent, log_prob))
        open_children(path, scores[-1], len(chosen) - 1, bool(spine))
    return spine_first(chosen)


@st.composite
def tables(draw: st.DrawFn) -> tuple[Children, int]:
    """Children that depend on the whole path: tokens in a drawn order, values descending."""
    vocab = draw(st.integers(1, 5))
    width = draw(st.integers(1, vocab))
    seed = draw(st.integers(0, 2**32 - 1))
    pool = draw(st.lists(values, min_size=1, max_size=6))
    known: dict[tuple[int, ...], list[tuple[int, float]]] = {}

    def children(path: tuple[int, ...]) -> list[tuple[int, float]]:
        if path not in known:
            random = np.random.default_rng([seed, len(path), *path])
            tokens = random.permutation(vocab)[:width].tolist()
            numbers = sorted(random.choice(pool, width).tolist(), reverse=True)
            known[path] = list(zip(tokens, numbers, strict=True))
        return known[path]

    return children, width


@settings(max_examples=150, deadline=None)
@given(tables(), shapes)
def test_the_tree_of_the_definition(table: tuple[Children, int], shape: TreeShape) -> None:
    children, _ = table
    expected = definition(children, shape)
    asked: list[tuple[int, ...]] = []
    assert as_list(best_first(ROOT, asking(children, asked), shape)) == expected
    assert len(asked) == len(set(asked)) <= max(min(len(expected) + 1, shape.budget), 0)


@settings(max_examples=60, deadline=None)
@given(tables(), shapes)
def test_the_tree_is_the_best_of_all_paths(table: tuple[Children, int], shape: TreeShape) -> None:
    """Scores only, from every path there is, without any search."""
    children, _ = table
    found: list[float] = []
    paths = [((), 0.0)]
    for _ in range(min(shape.max_depth, 4)):
        paths = [((*p, t), q + lp) for p, q in paths for t, lp in children(p) if lp > -math.inf]
        found += [q for _, q in paths]
    best = max((lp for _, lp in children(())), default=0.0)
    wanted = sorted((q for q in found if q >= best - shape.tau), reverse=True)[: shape.budget]
    limits = TreeShape(shape.budget, min(shape.max_depth, 4), shape.tau)
    found = cumulative(best_first(ROOT, asking(children), limits))
    assert sorted(found, reverse=True) == wanted


def cumulative(proposal: Proposal) -> list[float]:
    scores: list[float] = []
    for parent, log_prob in zip(proposal.parents, proposal.log_probs or (), strict=True):
        scores.append((scores[parent] if parent >= 0 else 0.0) + log_prob)
    return scores


def rows(*given_rows: dict[int, float]) -> Expand:
    """The same children for all nodes of a depth."""
    return lambda node: (list(given_rows[node.depth]), list(given_rows[node.depth].values()))


@pytest.mark.parametrize("chain_seed", [False, True])
@pytest.mark.parametrize("tau", [6.0, math.inf])
def test_the_reference_vector_of_the_prior_art(chain_seed: bool, tau: float) -> None:
    expand = rows({10: -0.1, 11: -3.0}, {20: -0.2, 21: -3.5}, {30: -0.3, 31: -4.0})
    built = best_first(ROOT, expand, TreeShape(8, 3, tau, chain_seed))
    assert built.tokens == [10, 20, 30, 11, 20, 30, 21, 30]
    assert [parent + 1 for parent in built.parents] == [0, 1, 2, 0, 4, 5, 1, 7]
    assert built.log_probs == [-0.1, -0.2, -0.3, -3.0, -0.2, -0.3, -3.5, -0.3]


def test_tau_counts_from_the_best_child_of_the_root() -> None:
    expand = rows({1: -1.0, 2: -3.0, 3: -3.5}, {4: -2.0, 5: -2.5})
    built = best_first(ROOT, expand, TreeShape(99, 2, 2.0))
    assert built.tokens == [1, 4, 2]
    assert best_first(ROOT, expand, TreeShape(99, 2, 0.0)).tokens == [1]


def test_ties_go_to_the_smaller_depth_then_rank_then_parent() -> None:
    expand = rows({7: 0.0, 8: 0.0}, {1: 0.0, 2: 0.0})
    paths = [[(7, -1)], [(7, -1), (8, -1)], [(7, -1), (1, 0), (8, -1)]]
    paths += [[(7, -1), (1, 0), (8, -1), (1, 2)], [(7, -1), (1, 0), (8, -1), (1, 2), (2, 0)]]
    for budget, expected in enumerate(paths, start=1):
        built = best_first(ROOT, expand, TreeShape(budget, 2))
        assert list(zip(built.tokens, built.parents, strict=True)) == expected


def test_the_seed_goes_deep_first_and_within_tau() -> None:
    expand = rows({1: -1.0, 2: -1.5}, {3: -2.0}, {4: -3.0}, {5: -0.1})
    seeded = best_first(ROOT, expand, TreeShape(4, 4, math.inf, True))
    assert seeded.tokens == [1, 3, 4, 5]
    assert best_first(ROOT, expand, TreeShape(4, 4, math.inf)).tokens == [1, 3, 2, 3]
    # q of the spine: -1, -3, -6; its third node is out of the window
    assert best_first(ROOT, expand, TreeShape(4, 4, 4.0, True)).tokens == [1, 3, 2, 3]


def test_only_nodes_in_the_tree_are_asked_for_children() -> None:
    asked: list[tuple[int, ...]] = []
    inner = rows({1: -0.5, 2: -1.0, 3: -4.0}, {1: -0.25, 2: -4.0}, {1: 0.0, 2: -1.0})

    def expand(node: Node) -> tuple[list[int], list[float]]:
        asked.append(node.path())
        return inner(node)

    built = best_first(ROOT, expand, TreeShape(3, 3))
    assert cumulative(built) == [-0.5, -0.75, -0.75]
    assert asked == [(), (1,), (1, 1)]


def test_an_impossible_token_is_no_candidate() -> None:
    expand = rows({1: -math.inf, 2: -math.inf}, {3: 0.0, 4: 0.0})
    assert as_list(best_first(ROOT, expand, TreeShape(9, 2, math.inf, True))) == []


@pytest.mark.parametrize("shape", [TreeShape(0, 3), TreeShape(3, 0), TreeShape(-1, -1)])
def test_no_room_no_question(shape: TreeShape) -> None:
    def expand(_: object) -> tuple[list[int], list[float]]:
        raise AssertionError("asked for nothing")

    assert as_list(best_first(ROOT, expand, shape)) == []


def test_children_may_run_out() -> None:
    expand = rows({1: -1.0}, {})
    assert as_list(best_first(ROOT, expand, TreeShape(9, 2))) == [(1, -1, -1.0)]


def build(tokens: list[int], log_probs: list[float], shape: TreeShape) -> Proposal:
    """All nodes have the same children."""
    return best_first(ROOT, lambda _: (tokens, log_probs), shape)


def test_rounding_above_zero_is_zero_and_more_is_refused() -> None:
    assert build([1], [1e-6], TreeShape(1, 1)).log_probs == [0.0]
    for bad in (0.1, math.nan, math.inf):
        with pytest.raises(ProposalError, match="at most 0"):
            build([1, 2], [bad, -1.0], TreeShape(1, 1))


def test_twins_are_refused() -> None:
    with pytest.raises(ProposalError, match="same token twice"):
        build([5, 5], [0.0, 0.0], TreeShape(2, 1))


def test_the_same_token_on_different_paths_is_fine() -> None:
    built = best_first(ROOT, rows({1: -0.5, 2: -1.0}, {1: 0.0}), TreeShape(4, 2))
    assert sorted(zip(built.parents, built.tokens, strict=True))[2:] == [(0, 1), (2, 1)]


def test_results_are_plain_numbers() -> None:
    built = build([1, 2], [-0.5, -1.0], TreeShape(4, 1))
    everything: Sequence[object] = [*built.tokens, *built.parents, *(built.log_probs or ())]
    assert [type(value) for value in everything] == [int] * 4 + [float] * 2
