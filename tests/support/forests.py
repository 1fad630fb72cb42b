"""Random trees, forests and accepted paths, from a NumPy generator or from Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from specla.core.topology import Forest, Tree
from specla.testing.forests import naive_path, paths_of, random_tree

__all__ = ["forests", "naive_path", "paths_of", "random_tree", "trees"]


@st.composite
def trees(draw: st.DrawFn, max_nodes: int = 14) -> Tree:
    """Any shape of tree; tokens are the node numbers, so that siblings differ."""
    n = draw(st.integers(1, max_nodes))
    parents = [-1] + [draw(st.integers(0, i - 1)) for i in range(1, n)]
    return Tree.build(range(n), parents)


def forests(max_trees: int = 4, max_nodes: int = 14) -> st.SearchStrategy[Forest]:
    """Up to ``max_trees`` trees."""
    some = st.lists(trees(max_nodes), min_size=1, max_size=max_trees)
    return some.map(lambda found: Forest(tuple(found)))
