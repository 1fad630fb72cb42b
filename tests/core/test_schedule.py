"""Heavy-light schedules: worked by hand, and their defining properties on random forests."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from support.forests import forests, random_tree, trees

from specla.core.schedule import Chain, heavy_children, heavy_light, subtree_sizes
from specla.core.topology import Forest, Tree


def tree(parents: list[int]) -> Tree:
    return Tree.build(range(len(parents)), parents)


def schedule_of(*parents: list[int]) -> tuple[tuple[Chain, ...], tuple[int, ...], tuple[int, ...]]:
    found = heavy_light(Forest(tuple(map(tree, parents))))
    assert found.n_boundaries == max(found.boundary_of_row) + 1
    return found.chains, found.wave_offsets, found.boundary_of_row


def test_lone_root() -> None:
    assert schedule_of([-1]) == ((Chain(0, (0,), -1, 0),), (0, 1), (-1,))


def test_chain_is_one_chain_one_wave_no_boundary() -> None:
    found = schedule_of([-1, 0, 1, 2])
    assert found == ((Chain(0, (0, 1, 2, 3), -1, 0),), (0, 1), (-1,) * 4)


def test_star_shares_one_boundary() -> None:
    chains, waves, boundary = schedule_of([-1, 0, 0, 0, 0])
    # all leaves weigh the same: the lowest is heavy
    assert chains == (
        Chain(0, (0, 1), -1, 0),
        Chain(0, (2,), 0, 1),
        Chain(0, (3,), 0, 1),
        Chain(0, (4,), 0, 1),
    )
    assert waves == (0, 1, 4)
    assert boundary == (0, -1, -1, -1, -1)


def test_eight_nodes() -> None:
    # 0-1-3-6, 1-4-7, 0-2-5
    chains, waves, boundary = schedule_of([-1, 0, 0, 1, 1, 2, 3, 4])
    assert chains == (
        Chain(0, (0, 1, 3, 6), -1, 0),
        Chain(0, (2, 5), 0, 1),
        Chain(0, (4, 7), 1, 1),
    )
    assert waves == (0, 1, 3)
    assert boundary == (0, 1, -1, -1, -1, -1, -1, -1)


def test_heavier_later_child_wins() -> None:
    chains, _, boundary = schedule_of([-1, 0, 0, 2])
    assert chains == (Chain(0, (0, 2, 3), -1, 0), Chain(0, (1,), 0, 1))
    assert boundary == (0, -1, -1, -1)


def test_ties_go_to_the_lowest_index() -> None:
    # children 1 and 2 of the root both have subtrees of 2
    chains, _, _ = schedule_of([-1, 0, 0, 2, 1])
    assert chains == (Chain(0, (0, 1, 4), -1, 0), Chain(0, (2, 3), 0, 1))


def test_deep_waves() -> None:
    # every light child's chain has a light child itself: 0-1-2.., 3 off 0, 6 off 3, 8 off 6
    parents = [-1, 0, 1, 0, 3, 4, 3, 6, 6, 2, 9, 10, 11]
    chains, waves, boundary = schedule_of(parents)
    assert [(c.rows, c.source, c.wave) for c in chains] == [
        ((0, 1, 2, 9, 10, 11, 12), -1, 0),
        ((3, 6, 7), 0, 1),
        ((4, 5), 1, 2),
        ((8,), 2, 2),
    ]
    assert waves == (0, 1, 2, 4)
    assert [boundary[row] for row in (0, 3, 6)] == [0, 1, 2]
    assert sum(b >= 0 for b in boundary) == 3


def test_forest_orders_by_wave_then_sequence() -> None:
    found = heavy_light(Forest((tree([-1, 0, 0]), tree([-1]), tree([-1, 0, 0, 0]))))
    assert found.chains == (
        Chain(0, (0, 1), -1, 0),
        Chain(1, (3,), -1, 0),
        Chain(2, (4, 5), -1, 0),
        Chain(0, (2,), 0, 1),
        Chain(2, (6,), 1, 1),
        Chain(2, (7,), 1, 1),
    )
    assert found.wave_offsets == (0, 3, 6)
    assert found.boundary_of_row == (0, -1, -1, -1, 1, -1, -1, -1)
    assert found.n_boundaries == 2


def naive_size(tree: Tree, node: int) -> int:
    return 1 + sum(naive_size(tree, child) for child in tree.children[node])


@given(trees())
def test_heavy_child_is_the_first_of_the_largest(tree: Tree) -> None:
    sizes = [naive_size(tree, node) for node in range(len(tree))]
    assert subtree_sizes(tree) == sizes
    for node, heavy in enumerate(heavy_children(tree)):
        kids = tree.children[node]
        if not kids:
            assert heavy == -1
            continue
        best = max(sizes[k] for k in kids)
        assert heavy == min(k for k in kids if sizes[k] == best)


def check(forest: Forest) -> None:
    found = heavy_light(forest)
    parent_of = [
        -1 if p < 0 else forest.offsets[b] + p
        for b, tree in enumerate(forest.trees)
        for p in tree.parents
    ]
    owner = [b for b, tree in enumerate(forest.trees) for _ in tree.parents]
    chain_of = {row: chain for chain in found.chains for row in chain.rows}
    # every row lies in exactly one chain, of its own sequence
    assert sorted(row for chain in found.chains for row in chain.rows) == list(range(forest.rows))
    written: dict[int, int] = {}
    finished: set[int] = set()
    for chain in found.chains:
        assert {owner[row] for row in chain.rows} == {chain.sequence}
        above = [parent_of[chain.rows[0]], *chain.rows[:-1]]
        assert [parent_of[row] for row in chain.rows] == above
        head = parent_of[chain.rows[0]]
        if head < 0:
            assert (chain.source, chain.wave) == (-1, 0)
        else:
            # the state at the head's parent is there before the chain needs it
            assert written[chain.source] == head
            assert chain.wave == chain_of[head].wave + 1
            assert chain_of[head].rows[0] in finished
        for row in chain.rows:
            if found.boundary_of_row[row] >= 0:
                assert found.boundary_of_row[row] not in written
                written[found.boundary_of_row[row]] = row
        finished.add(chain.rows[0])
    # boundaries lie exactly at the parents of light children, one slot each
    light = {parent_of[c.rows[0]] for c in found.chains} - {-1}
    assert {r for r in range(forest.rows) if found.boundary_of_row[r] >= 0} == light
    assert sorted(written) == list(range(found.n_boundaries))
    # room that the pools are made for
    assert found.n_boundaries <= sum(len(tree) // 2 for tree in forest.trees)
    keys = [(c.wave, c.sequence, c.rows[0]) for c in found.chains]
    assert keys == sorted(keys)
    waves = [c.wave for c in found.chains]
    for wave in range(waves[-1] + 1):
        start, stop = found.wave_offsets[wave : wave + 2]
        assert waves[start:stop] == [wave] * waves.count(wave)
    assert len(found.wave_offsets) == waves[-1] + 2


@given(forests())
def test_properties(forest: Forest) -> None:
    check(forest)


@pytest.mark.parametrize("seed", range(5))
def test_properties_of_large_forests(seed: int) -> None:
    rng = np.random.default_rng(seed)
    check(Forest(tuple(random_tree(rng, 300, 1000, chainlike=seed / 5) for _ in range(3))))


@given(forests(max_trees=3))
def test_a_tree_has_the_same_chains_in_any_forest(forest: Forest) -> None:
    together = heavy_light(forest)
    for b, alone in enumerate(forest.trees):
        single = heavy_light(Forest((alone,)))
        offset = forest.offsets[b]
        mine = [c for c in together.chains if c.sequence == b]
        assert [tuple(r - offset for r in c.rows) for c in mine] == [c.rows for c in single.chains]
        assert [c.wave for c in mine] == [c.wave for c in single.chains]
