"""The best-first search itself, one node at a time."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from specla.core.proposal import Proposal
from specla.core.trees.shape import Floats, TreeShape, checked, proposal

ExpandOne = Callable[[tuple[int, ...]], tuple[npt.NDArray[np.int32], Floats]]
"""Scores the children of the node at the end of a path, the tokens from the root (excluded) on:
int32 [k] and floats [k], best first; -inf marks a child that isn't one."""


class _Open(NamedTuple):
    """A node that may be taken. No two share depth, rank and parent, so the fields after these
    never decide the order."""

    key: float
    depth: int
    rank: int
    parent: int
    path: tuple[int, ...]
    log_prob: float
    score: float


def search(expand: ExpandOne, shape: TreeShape) -> Proposal:
    """The best tree, asking for the children of no nodes but those that are in it.

    Raises ProposalError for NaN, for a log-probability above 0, and for siblings that carry the
    same token.
    """
    taken: list[_Open] = []
    heap: list[_Open] = []
    floor = math.nan
    last = _Open(-math.inf if shape.chain_seed else 0.0, 0, 0, -1, (), 0.0, 0.0)
    while len(taken) < shape.budget:
        if last.depth < shape.max_depth:
            children = _children(last, len(taken) - 1, *expand(last.path))
            if not taken:
                floor = shape.floor(max((child.score for child in children), default=-math.inf))
            for child in children:
                if child.score >= floor:
                    heapq.heappush(heap, child)
        if not heap:
            break
        last = heapq.heappop(heap)
        taken.append(last)
    return proposal(
        [node.path[-1] for node in taken],
        [node.parent for node in taken],
        [node.log_prob for node in taken],
    )


def _children(
    node: _Open, number: int, tokens: npt.NDArray[np.int32], log_probs: Floats
) -> list[_Open]:
    """The children of the node that is taken as number ``number``, the root being -1."""
    children = []
    values = checked(log_probs).tolist()
    for rank, (token, log_prob) in enumerate(zip(tokens.tolist(), values, strict=True)):
        score = node.score + log_prob
        on_spine = node.key == -math.inf and rank == 0
        key = -math.inf if on_spine else -score
        path = (*node.path, token)
        children.append(_Open(key, node.depth + 1, rank, number, path, log_prob, score))
    return children
