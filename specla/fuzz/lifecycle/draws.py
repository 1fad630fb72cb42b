"""How a machine draws trees, paths, shares of a prefill and failures."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from specla.core.topology import Tree
from specla.fuzz.failing import KERNELS, TRANSFERS
from specla.fuzz.lifecycle.driver import Tokens
from specla.fuzz.lifecycle.operations import Grown
from specla.fuzz.lifecycle.texts import Failure
from specla.testing.forests import random_tree

numbers = st.integers(0, 5)
"""Of a sequence, a snapshot or a node: taken modulo how many there are."""
seeds = st.integers(0, 2**32 - 1)
_SHAPES = ("lone", "chain", "star", "comb", "random", "bush")

kernel_failures = st.builds(
    Failure,
    st.one_of(st.integers(0, 3), st.integers(0, 40)),
    st.sampled_from(["before", "after", "wreck"]),
    st.sampled_from(
        [("conv_verify", "gdn_verify"), ("fold_state", "fold_window"), ("gather",), KERNELS]
    ),
)
transfer_failures = st.builds(
    Failure, st.integers(0, 20), st.sampled_from(["before", "after"]), st.just(TRANSFERS)
)


def failures(possible: bool) -> st.SearchStrategy[Failure | None]:
    """None more often than not."""
    if not possible:
        return st.none()
    return st.one_of(st.none(), st.none(), kernel_failures, transfer_failures)


def _tree(shape: str, size: int, seed: int, vocab: int) -> Tree:
    rng = np.random.default_rng(seed)
    if shape in ("random", "bush", "chain", "lone"):
        chainlike = {"random": 0.5, "bush": 0.0}.get(shape, 1.0)
        return random_tree(rng, 1 if shape == "lone" else size, vocab, chainlike=chainlike)
    # siblings differ: tokens of one tree are drawn without repetition
    tokens = rng.permutation(vocab)[:size].tolist()
    if shape == "star":
        return Tree.build(tokens, [-1] + [0] * (len(tokens) - 1))
    # comb: a spine with a tooth at every second place
    return Tree.build(tokens, [-1, *(max(i - 1 - (i % 2), 0) for i in range(1, len(tokens)))])


@st.composite
def grown(draw: st.DrawFn, vocab: int, max_nodes: int) -> Grown:
    """A tree of any shape for a sequence."""
    tree = _tree(
        draw(st.sampled_from(_SHAPES)), draw(st.integers(1, max_nodes)), draw(seeds), vocab
    )
    return draw(numbers), tuple(tree.tokens), tuple(tree.parents)


def batches(vocab: int, max_nodes: int) -> st.SearchStrategy[tuple[Grown, ...]]:
    """Trees for one sequence or several."""
    return st.lists(grown(vocab, max_nodes), min_size=1, max_size=3).map(tuple)


def tokens(vocab: int, most: int) -> st.SearchStrategy[Tokens]:
    """Committed tokens."""

    def draw(seed: int, length: int) -> Tokens:
        return tuple(np.random.default_rng(seed).integers(0, vocab, length).tolist())

    return st.builds(draw, seeds, st.integers(1, most))
