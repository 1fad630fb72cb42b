"""How likely each candidate is accepted: what the draft says, corrected by what happened."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

DECAY = 0.92
"""Weight of what happened a round earlier, relative to the round after: texts change."""

IDLE_DECAY = 0.99
"""The same for a round in which nothing was offered."""

BIN_PRIOR = 2.0
GLOBAL_PRIOR = 4.0
"""Expected acceptances that the belief "the draft is right" counts for, in each bin (where the
belief is that the bin is as right as all bins together) and in all."""

EDGES = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""Between the bins of path probabilities."""

DEPTHS = 16
RANKS = (0.6, 0.15, 0.05)
"""A draft without probabilities: one bin per depth and place among the siblings, in the order of
the proposal; those deeper, or further back, share the last. ``RANKS``: chances given the parent,
which is all that is counted here, as there is no other measure of a path."""


@dataclass(frozen=True)
class Scored:
    """Candidates of one proposal.

    chances: of being accepted, never higher than the parent's.  stated: what the draft says of
    the path or, without probabilities, what is supposed of a candidate after its parent.  bins:
    where what happens to a candidate is counted.  parents: as in the proposal.  confident: whether
    the draft gave probabilities.
    """

    chances: list[float]
    stated: list[float]
    bins: list[int]
    parents: Sequence[int]
    confident: bool


class _Table:
    """Accepted candidates and expected ones, by bin, both decayed."""

    def __init__(self, bins: int) -> None:
        self.accepted = [0.0] * bins
        self.expected = [0.0] * bins

    def ratios(self) -> list[float]:
        """By which what the draft says must be multiplied, per bin."""
        accepted, expected = sum(self.accepted), sum(self.expected)
        overall = (accepted + GLOBAL_PRIOR) / (expected + GLOBAL_PRIOR)
        return [
            (a + BIN_PRIOR * overall) / (e + BIN_PRIOR)
            for a, e in zip(self.accepted, self.expected, strict=True)
        ]

    def decay(self, factor: float) -> None:
        self.accepted = [value * factor for value in self.accepted]
        self.expected = [value * factor for value in self.expected]


class Survival:
    """Corrects a draft's probabilities by the share of candidates that were accepted.

    With log-probabilities, candidates are counted by the probability of their path; without, by
    depth and place among the siblings, which makes it a table of how deep accepted paths reach.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Believe the draft again."""
        self._by_probability = _Table(len(EDGES) + 1)
        self._by_depth = _Table(DEPTHS * len(RANKS))
        # by how much both are yet to be decayed: many rounds have nothing to learn from
        self._factor = 1.0

    def score(self, parents: Sequence[int], log_probs: Sequence[float] | None) -> Scored:
        """Chances of the candidates of a proposal; parents come before children."""
        self._decay()
        if log_probs is None:
            return self._score_by_depth(parents)
        ratios = self._by_probability.ratios()
        chances: list[float] = []
        stated: list[float] = []
        bins: list[int] = []
        for parent, log_prob in zip(parents, log_probs, strict=True):
            p, most = (stated[parent], chances[parent]) if parent >= 0 else (1.0, 1.0)
            p *= exp(log_prob)
            place = bisect_left(EDGES, p)
            chance = p * ratios[place]
            chances.append(chance if chance < most else most)
            stated.append(p)
            bins.append(place)
        return Scored(chances, stated, bins, parents, True)

    def _score_by_depth(self, parents: Sequence[int]) -> Scored:
        ratios = self._by_depth.ratios()
        siblings: dict[int, int] = {}
        depths: list[int] = []
        chances: list[float] = []
        stated: list[float] = []
        bins: list[int] = []
        for parent in parents:
            rank = siblings.get(parent, 0)
            siblings[parent] = min(rank + 1, len(RANKS) - 1)
            depth = min(depths[parent] + 1, DEPTHS - 1) if parent >= 0 else 0
            place = depth * len(RANKS) + rank
            chance = min(RANKS[rank] * ratios[place], 1.0)
            depths.append(depth)
            chances.append(chance * chances[parent] if parent >= 0 else chance)
            stated.append(RANKS[rank])
            bins.append(place)
        return Scored(chances, stated, bins, parents, False)

    def learn(self, scored: Scored, offered: Sequence[int], accepted: Sequence[int]) -> None:
        """Of the candidates ``offered`` were verified, and those of ``accepted`` were right."""
        self.idle(DECAY)
        self._decay()
        table = self._by_probability if scored.confident else self._by_depth
        reached = {-1, *accepted}
        for i in offered:
            if scored.confident or scored.parents[i] in reached:
                table.expected[scored.bins[i]] += scored.stated[i]
        for i in accepted:
            table.accepted[scored.bins[i]] += 1.0

    def idle(self, factor: float = IDLE_DECAY) -> None:
        """A round went by without candidates: what is known is a little older."""
        self._factor *= factor

    def _decay(self) -> None:
        if self._factor != 1.0:
            self._by_probability.decay(self._factor)
            self._by_depth.decay(self._factor)
            self._factor = 1.0

    def report(self) -> dict[str, float]:
        """Accepted per expected acceptance, by the upper end of the bin of path probabilities."""
        self._decay()
        tops = [*EDGES, 1.0]
        ratios = self._by_probability.ratios()
        return {f"{top:g}": round(ratio, 3) for top, ratio in zip(tops, ratios, strict=True)}
