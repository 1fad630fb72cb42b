"""The tree of the best-first search, built level by level.

A node that isn't among the ``budget`` best so far never will be, and no node below it, so a level
asks only for the children of nodes that are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from specla.core.proposal import Proposal
from specla.core.trees.shape import Floats, TreeShape, checked, proposal

Int32 = npt.NDArray[np.int32]
Float64 = npt.NDArray[np.float64]

# Nodes are columns; these are the rows. KEY orders them: the smaller, the earlier. BIRTH numbers
# the nodes as they are scored, and PARENT is the parent's number.
_KEY, _SCORE, _LOG_PROB, _TOKEN, _PARENT, _BIRTH = range(6)
_NONE = -1.0  # the root's number


@dataclass(frozen=True)
class Level:
    """Nodes of one depth whose children are asked for; M of them, in the order
    in which they would be taken.

    depth: theirs, 0 for the root.  before int32 [M]: the token that each carries.
    """

    depth: int
    before: Int32
    _nodes: Float64 = field(repr=False)
    _pool: Float64 = field(repr=False)

    def paths(self) -> list[tuple[int, ...]]:
        """The tokens from the root (excluded) to each node (included)."""
        paths: dict[float, tuple[int, ...]] = {_NONE: ()}
        # all ancestors of a node are in the pool, each before its children
        for birth, parent, token in self._pool[[_BIRTH, _PARENT, _TOKEN]].T.tolist():
            paths[birth] = (*paths[parent], int(token))
        return [paths[birth] for birth in self._nodes[_BIRTH].tolist()]


Expand = Callable[[Level], tuple[Int32, Floats]]
"""Scores the children of a level's M nodes: tokens int32 and log-probabilities, both [M, k], or
[1, k] where all nodes have the same children. Row m holds the k best children of node m, best
first; -inf marks a child that isn't one. It is called once per level, from the root down."""


def grow(root: int, expand: Expand, shape: TreeShape) -> Proposal:
    """The best tree below the token ``root``.

    Raises ProposalError for NaN, for a log-probability above 0, and for siblings that carry the
    same token.
    """
    if shape.budget < 1 or shape.max_depth < 1:
        return Proposal()
    pool = np.empty((6, 0))
    key = -math.inf if shape.chain_seed else 0.0
    level = np.array([[key], [0.0], [0.0], [root], [_NONE], [_NONE]])
    floor, born = math.nan, 0
    for depth in range(shape.max_depth):
        before = level[_TOKEN].astype(np.int32)
        children = _children(level, *expand(Level(depth, before, level, pool)), born)
        if not children.shape[1]:
            break
        if depth == 0:
            floor = shape.floor(float(children[_SCORE].max()))
        # the first of a level is on the spine, if any is, and so is its first child
        if level[_KEY, 0] == -math.inf and children[_SCORE, 0] >= floor:
            children[_KEY, 0] = -math.inf
        pool = _best(pool, children, floor, shape.budget)
        level = _open(pool, born, shape.budget)
        if not level.shape[1]:
            break
        born += children.shape[1]
    return _proposal(pool)


def _children(level: Float64, tokens: Int32, log_probs: Floats, born: int) -> Float64:
    """The children of a level as columns: by rank, those of one rank in their parents' order."""
    columns = np.empty((6, log_probs.shape[1], level.shape[1]))
    columns[_LOG_PROB] = checked(log_probs).T
    np.add(columns[_LOG_PROB], level[_SCORE], out=columns[_SCORE])
    np.negative(columns[_SCORE], out=columns[_KEY])
    columns[_TOKEN] = tokens.T
    columns[_PARENT] = level[_BIRTH]
    flat = columns.reshape(6, -1)
    flat[_BIRTH] = np.arange(born, born + flat.shape[1])
    return flat


def _best(pool: Float64, children: Float64, floor: float, budget: int) -> Float64:
    """The first ``budget`` of both that are not below the floor, in order."""
    both = np.concatenate((pool, children), axis=1)
    # Stable, so equal keys stay as they stand here: the pool is in order and less deep than the
    # children, and these stand by rank and parent.
    order = both[_KEY].argsort(kind="stable")[:budget]
    best: Float64 = both.take(order, axis=1)
    return best[:, : best[_KEY].searchsorted(-floor, side="right")]


def _open(pool: Float64, born: int, budget: int) -> Float64:
    """The nodes of the newest level that may have children in the tree."""
    wanted = pool[_BIRTH] >= born
    if pool.shape[1] == budget:
        # a child comes after its parent, and after every equal that is less deep
        wanted &= pool[_KEY] < pool[_KEY, -1]
    opened: Float64 = pool.compress(wanted, axis=1)
    return opened


def _proposal(pool: Float64) -> Proposal:
    place = {birth: i for i, birth in enumerate(pool[_BIRTH].tolist())} | {_NONE: -1}
    parents = [place[parent] for parent in pool[_PARENT].tolist()]
    return proposal(pool[_TOKEN].astype(np.int64).tolist(), parents, pool[_LOG_PROB].tolist())
