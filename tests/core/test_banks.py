"""Rotate or gather: the whole truth table of accepting a path."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.forests import paths_of, trees

from specla.core.banks import Banks, accept
from specla.core.topology import Tree


@pytest.mark.parametrize("bank", [0, 1])
@pytest.mark.parametrize("count", [0, 3])
@pytest.mark.parametrize(
    ("path", "gather", "moves"),
    [
        # prefixes of the node order rotate
        ((0,), (), ()),
        ((0, 1), (), ()),
        ((0, 1, 2, 3), (), ()),
        # anything else is gathered from the current bank, root included
        ((0, 2), (0, 2), ((2, 1),)),
        ((0, 1, 3), (0, 1, 3), ((3, 2),)),
        ((0, 2, 3, 7), (0, 2, 3, 7), ((2, 1), (3, 2), (7, 3))),
    ],
)
def test_truth_table(
    bank: int,
    count: int,
    path: tuple[int, ...],
    gather: tuple[int, ...],
    moves: tuple[tuple[int, int], ...],
) -> None:
    move = accept(Banks(bank, count), path)
    assert move.source_bank == 1 - bank  # the verify wrote there
    assert (move.gather, move.moves) == (gather, moves)
    # a rotation makes the written bank pending; a gather goes over the folded one
    assert move.banks == Banks(bank if gather else 1 - bank, len(path))
    assert move.banks.current_bank == 1 - move.banks.pending_bank


@given(tree=trees(), bank=st.integers(0, 1))
def test_every_path_lands_in_path_order(tree: Tree, bank: int) -> None:
    for path in paths_of(tree):
        move = accept(Banks(bank), path)
        banks = {1 - bank: [f"node {n}" for n in range(len(tree))], bank: ["?"] * len(tree)}
        cache = [f"node {n}" for n in range(len(tree))]
        if move.gather:
            assert move.source_bank != move.banks.pending_bank
            for i, node in enumerate(move.gather):
                banks[move.banks.pending_bank][i] = banks[move.source_bank][node]
        for source, target in move.moves:  # ascending and downwards: safe one after another
            assert target < source
            cache[target] = cache[source]
        wanted = [f"node {n}" for n in path]
        assert banks[move.banks.pending_bank][: move.banks.pending_count] == wanted
        assert cache[: len(path)] == wanted
        assert list(move.moves) == sorted(move.moves)
