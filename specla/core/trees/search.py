"""The best-first search: one node at a time, asking for the children of no others.

It runs once a round and takes a few microseconds a node, so it works on plain numbers.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from dataclasses import dataclass, field

from specla.core.proposal import Proposal
from specla.core.trees.shape import TreeShape, log_probability, proposal


@dataclass(frozen=True)
class Node:
    """A node whose children are asked for. depth: 0 for the root.  token: what it carries."""

    depth: int
    token: int
    _number: int = field(default=-1, repr=False)
    _tokens: list[int] = field(default_factory=list, repr=False)
    _parents: list[int] = field(default_factory=list, repr=False)

    def path(self) -> tuple[int, ...]:
        """The tokens from the root (excluded) to the node (included)."""
        path, number = [], self._number
        while number >= 0:
            path.append(self._tokens[number])
            number = self._parents[number]
        return tuple(reversed(path))


Expand = Callable[[Node], tuple[list[int], list[float]]]
"""Scores a node's children: tokens and log-probabilities, best first; -inf marks a child that isn't
one."""


def best_first(root: int, expand: Expand, shape: TreeShape) -> Proposal:
    """The best tree below the token ``root``.

    Raises ProposalError for NaN, for a log-probability above 0, and for siblings that carry the
    same token.
    """
    tokens: list[int] = []
    parents: list[int] = []
    log_probs: list[float] = []
    # key, depth, rank, parent: the order, in which no two are equal; then token, log_prob, q
    heap: list[tuple[float, int, int, int, int, float, float]] = []
    key, depth, token, q, floor = (-math.inf if shape.chain_seed else 0.0), 0, root, 0.0, math.nan
    while len(tokens) < shape.budget:
        if depth < shape.max_depth:
            number = len(tokens) - 1
            found, values = expand(Node(depth, token, number, tokens, parents))
            values = [value if value <= 0.0 else log_probability(value) for value in values]
            if number < 0:
                floor = shape.floor(max(values, default=-math.inf))
            for rank, (child, value) in enumerate(zip(found, values, strict=True)):
                score = q + value
                if score >= floor:
                    on_spine = rank == 0 and key == -math.inf
                    order = -math.inf if on_spine else -score
                    heapq.heappush(heap, (order, depth + 1, rank, number, child, value, score))
        if not heap:
            break
        key, depth, _, parent, token, value, q = heapq.heappop(heap)
        tokens.append(token)
        parents.append(parent)
        log_probs.append(value)
    return proposal(tokens, parents, log_probs)
