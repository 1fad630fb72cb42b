"""Random trees, forests and accepted paths, from a NumPy generator or from Hypothesis."""

from __future__ import annotations

from hypothesis import strategies as st

from specla.core.topology import Forest, Tree
from specla.testing.forests import random_tree

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


def naive_path(tree: Tree, node: int) -> list[int]:
    """Ancestors of a node, root first, itself last."""
    path = []
    while node != -1:
        path.insert(0, node)
        node = tree.parents[node]
    return path


def paths_of(tree: Tree) -> list[tuple[int, ...]]:
    """All accepted paths that a tree allows: one per node."""
    return [tuple(naive_path(tree, node)) for node in range(len(tree))]
