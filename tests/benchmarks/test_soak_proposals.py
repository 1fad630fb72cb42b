"""What a soak proposes: valid trees whose accepted path is known beforehand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soak_proposals import REGIMES, draw_right, draw_shape, fill

from specla.core.acceptance import walk
from specla.core.topology import Tree

TRUTH = [7, 3, 3, 9, 1, 0, 5, 2, 8, 6, 4, 7]


def proposal(
    regime: str, seed: int, candidates: int, max_depth: int
) -> tuple[Tree, tuple[int, ...]]:
    """Root and candidates as a tree, and the candidates that must be accepted as its nodes."""
    rng = Random(seed)
    shape = draw_shape(rng, candidates, max_depth)

    def wrong(excluded: set[int]) -> int:
        return rng.choice([token for token in range(30) if token not in excluded])

    right = draw_right(rng, regime, shape)
    tokens, accepted = fill(rng, shape, right, lambda depth: TRUTH[depth - 1], wrong)
    tree = Tree.build((0, *tokens), (-1, *(parent + 1 for parent in shape[0])))
    return tree, tuple(node + 1 for node in accepted)


@given(
    st.sampled_from(REGIMES), st.integers(0, 2**32), st.integers(0, 11), st.integers(1, len(TRUTH))
)
def test_what_must_be_accepted_is_what_is_accepted(
    regime: str, seed: int, candidates: int, max_depth: int
) -> None:
    tree, accepted = proposal(regime, seed, candidates, max_depth)
    path = walk(tree, lambda node, texts: TRUTH[len(texts)]).path if len(TRUTH) else ()
    assert path[1:] == accepted
    assert len(tree) - 1 <= candidates and max(tree.depths) <= max_depth
    if regime == "reject":
        assert not accepted
    if regime == "full":
        assert len(accepted) == max(tree.depths)


@pytest.mark.parametrize("regime", REGIMES)
def test_chains_trees_and_paths_out_of_order_all_occur(regime: str) -> None:
    drawn = [proposal(regime, seed, 11, 11) for seed in range(200)]
    chains = sum(max(tree.depths) == len(tree) - 1 for tree, _ in drawn)
    gathers = sum(path != tuple(range(1, len(path) + 1)) for _, path in drawn)
    lengths = {len(path) for _, path in drawn}
    assert 20 < chains < 150
    assert gathers == 0 if regime == "reject" else gathers > 50
    assert lengths == {"reject": {0}}.get(regime, lengths) and len(lengths) >= (
        1 if regime == "reject" else 6
    )
