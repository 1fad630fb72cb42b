"""Random trees of candidates."""

from __future__ import annotations

import numpy as np

from specla.core.topology import Tree


def random_tree(
    rng: np.random.Generator, nodes: int, vocab: int = 40, *, chainlike: float = 0.4
) -> Tree:
    """A tree with distinct sibling tokens; ``chainlike``: chance to extend the last node.

    It has fewer than ``nodes`` nodes where the vocabulary has no more distinct siblings.
    """
    tokens, parents = [int(rng.integers(vocab))], [-1]
    for i in range(1, nodes):
        parent = i - 1 if rng.random() < chainlike else int(rng.integers(i))
        taken = {t for t, p in zip(tokens, parents, strict=True) if p == parent}
        free = [t for t in range(vocab) if t not in taken]
        if not free:
            break
        tokens.append(int(rng.choice(free)))
        parents.append(parent)
    return Tree.build(tokens, parents)


def naive_path(tree: Tree, node: int) -> list[int]:
    """Ancestors of a node, root first, itself last."""
    path: list[int] = []
    while node != -1:
        path.insert(0, node)
        node = tree.parents[node]
    return path


def paths_of(tree: Tree) -> list[tuple[int, ...]]:
    """All accepted paths that a tree allows: one per node."""
    return [tuple(naive_path(tree, node)) for node in range(len(tree))]
