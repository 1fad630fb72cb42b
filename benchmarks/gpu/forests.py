"""Chains and trees of a wanted number of nodes, one for each sequence of a batch."""

from __future__ import annotations

from specla.core.topology import Forest, Tree


def branching(nodes: int) -> Tree:
    """A tree as a good draft's: two fifths are a spine, chains of two and one leave it from the
    root downwards."""
    spine = -(-2 * nodes // 5) if nodes > 2 else nodes
    parents = list(range(-1, spine - 1))
    for turn in range(nodes):
        if len(parents) < nodes:
            parents.append(turn % spine)
        if turn % 2 == 0 and len(parents) < nodes:
            parents.append(len(parents) - 1)
    return Tree.build(range(nodes), parents)


def forest(form: str, nodes: int, batch: int) -> Forest:
    """form: "chain" or "tree"."""
    tree = Tree.chain(range(nodes)) if form == "chain" else branching(nodes)
    return Forest((tree,) * batch)
