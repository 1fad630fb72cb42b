"""Draft trees, best first: the nodes whose paths the draft thinks most likely.

The score q of a node is the sum of the log-probabilities along its path. A best-first search takes
one node after another until its budget is spent (DDTree; SpecLA, arXiv 2607.16673).

The order in which nodes are taken is total, so that trees are reproducible: higher q, then smaller
depth, then smaller rank among the siblings, then the parent that was taken first. With
``chain_seed`` the spine is taken before all others.

A proposal begins with its spine (best child of the root, best child of that, and so on, as far as
they are in the tree), because a path is committed without copying if it is the front of the tree;
the other nodes follow in the order in which they were taken. So parents come before children.
"""

from specla.core.trees.search import Expand, Node, best_first
from specla.core.trees.shape import TreeShape

__all__ = ["Expand", "Node", "TreeShape", "best_first"]
