"""Which candidates, and how many, are worth their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specla.core.proposal import Proposal


@dataclass(frozen=True)
class Rates:
    """What rows cost and what seconds are worth.

    cost: seconds of a step by number of candidates.  draft: seconds of the draft by number of
    candidates.  plain: tokens per second of plain decoding.  late: tokens per second reached
    lately, at least ``plain``.
    """

    cost: list[float]
    draft: list[float]
    plain: float
    late: float

    def gain(self, nodes: int, chances: float, *, draft: bool = False) -> float:
        """Tokens that a step with ``nodes`` candidates brings, less those that its time would
        have brought at the rate of late. chances: their sum."""
        seconds = self.cost[nodes] + (self.draft[nodes] if draft else 0.0)
        return 1.0 + chances - self.late * seconds


@dataclass(frozen=True)
class Plan:
    """nodes: candidates.  tokens: expected with them.  gain: see :meth:`Rates.gain`."""

    nodes: int
    tokens: float
    gain: float


def best_plan(chances: list[float], rates: Rates, *, draft: bool = False) -> Plan:
    """The number of most likely candidates with the highest gain, the smallest of equals.

    chances: in descending order.  draft: whether the draft is yet to be paid for.

    A round's gain, and not its tokens per second, is what makes all rounds together fastest:
    where time is worth ``late`` tokens per second, a row pays if its chance exceeds what its time
    is worth, in good rounds and in bad ones (renewal-reward argument).
    """
    late, cost, paid = rates.late, rates.cost, rates.draft
    tokens, nodes, best, best_tokens = 1.0, 0, rates.gain(0, 0.0, draft=draft), 1.0
    for i, chance in enumerate(chances, start=1):
        tokens += chance
        gain = tokens - late * (cost[i] + paid[i] if draft else cost[i])
        if gain > best:
            nodes, best, best_tokens = i, gain, tokens
    return Plan(nodes, best_tokens, best)


def depths_of(parents: Sequence[int]) -> list[int]:
    """Distance of each candidate from the root."""
    depths: list[int] = []
    for parent in parents:
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
    return depths


def ranking(chances: list[float], depths: list[int], max_depth: int) -> list[int]:
    """Candidates that can be used, the most likely first; parents come before children."""
    usable = [i for i, depth in enumerate(depths) if depth <= max_depth]
    # stable: of equals the earlier, and no chance exceeds the parent's
    return sorted(usable, key=chances.__getitem__, reverse=True)


def part_of(proposal: Proposal, kept: list[int]) -> Proposal:
    """The candidates ``kept``, in ascending order and with all their ancestors."""
    place = {old: new for new, old in enumerate(kept)}
    place[-1] = -1
    log_probs = proposal.log_probs
    return Proposal(
        [proposal.tokens[i] for i in kept],
        [place[proposal.parents[i]] for i in kept],
        None if log_probs is None else [log_probs[i] for i in kept],
    )
