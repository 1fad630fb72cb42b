"""What limits a tree, and what is checked of the scores it is made of."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

from specla.core.proposal import Proposal
from specla.errors import ProposalError

_SOFTMAX_EXCESS = 1e-3  # by so much may rounding lift a log-probability above 0


@dataclass(frozen=True)
class TreeShape:
    """What limits a tree.

    budget: most nodes, the root not counted.  max_depth: deepest node.
    tau: only nodes with q >= q* - tau, q* being the best score at depth 1; infinite for no limit.
    chain_seed: the spine (each node's best child, from the root on) goes in before anything else,
    as far as the other limits let it.
    """

    budget: int
    max_depth: int
    tau: float = math.inf
    chain_seed: bool = False

    def floor(self, best: float) -> float:
        """The least score that a node may have, ``best`` being q*. Always finite: an impossible
        token is no candidate, however large tau is."""
        return max(best - self.tau, -sys.float_info.max)


def log_probability(value: float) -> float:
    """A value that isn't at most 0, without what rounding has put above it.

    Raises ProposalError for NaN and for what is no log-probability.
    """
    if not value <= _SOFTMAX_EXCESS:
        raise ProposalError(f"the draft's log-probability {value}; a log-probability is at most 0")
    return min(value, 0.0)


def proposal(tokens: list[int], parents: list[int], log_probs: list[float]) -> Proposal:
    """Nodes in the order in which they were taken as a proposal, the spine first.

    Raises ProposalError for siblings that carry the same token.
    """
    if len(set(zip(parents, tokens, strict=True))) < len(tokens):
        raise ProposalError("the draft proposed the same token twice after one path")
    spine: list[int] = []
    last = -1
    for node, parent in enumerate(parents):
        if parent == last:
            spine.append(node)
            last = node
    if last == len(spine) - 1:
        return Proposal(tokens, parents, log_probs)
    order = spine + sorted(set(range(len(tokens))).difference(spine))
    place = {node: i for i, node in enumerate(order)} | {-1: -1}
    return Proposal(
        [tokens[node] for node in order],
        [place[parents[node]] for node in order],
        [log_probs[node] for node in order],
    )
