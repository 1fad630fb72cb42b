"""What one target and one draft cost, as far as it was measured, and the rounds that begin to."""

from __future__ import annotations

from dataclasses import dataclass, field

from specla.adapters.adaptive.cost_curve import CostCurve
from specla.adapters.adaptive.plan import Rates

TARGET_SLOPE = 0.15
"""Cost of a further row over that of the first, until it is measured."""

DRAFT_SLOPE = 1000.0
"""A draft is taken for one that goes token by token until it was asked for fewer: then it is
known."""

START = (0, 4, 0, 8)
"""Candidates of the first rounds, so that the costs are known: plain decoding, and some rows.
Twice, because what runs for the first time may take much longer."""

PATIENCE = 8
"""Rounds without a proposal after which the start goes on without one."""


@dataclass
class Measured:
    """Costs of steps and drafts in seconds, shared by all sequences of one target.

    cost: of a step by rows.  draft: of a draft by candidates.  deep: the same by the depth of the
    deepest candidate.
    """

    cost: CostCurve = field(default_factory=lambda: CostCurve(1, TARGET_SLOPE))
    draft: CostCurve = field(default_factory=lambda: CostCurve(0, DRAFT_SLOPE))
    deep: CostCurve = field(default_factory=lambda: CostCurve(0, DRAFT_SLOPE))

    @property
    def ready(self) -> bool:
        """Whether both were measured at all."""
        return not (self.cost.empty or self.draft.empty)

    def plain(self) -> float:
        """Seconds of a step of plain decoding."""
        return self.cost.table(1)[0]

    def draft_tokens(self, nodes: int) -> float:
        """What a draft of so many candidates costs, in tokens of plain decoding; 1 if unknown."""
        return self.draft.table(nodes)[nodes] / self.plain() if self.ready else 1.0

    def round_seconds(self, rows: int, drafted: int | None) -> float:
        """What such a round usually takes. drafted: candidates of the draft, None: not asked."""
        seconds = self.cost.usual(rows)
        if seconds is None:
            seconds = 0.0 if self.cost.empty else self.cost.table(rows)[rows - 1]
        if drafted is not None and not self.draft.empty:
            seconds += self.draft.table(drafted)[drafted]
        return seconds

    def rates(self, most: int, draft_seconds: float, late: float) -> Rates:
        """What up to ``most`` candidates cost. draft_seconds: of this draft.  late: tokens per
        second of late, 0 if unknown."""
        cost = self.cost.table(most + 1)
        plain = 1.0 / cost[0]
        if self.cost.empty:
            # no seconds to compare with yet
            return Rates(cost, [0.0] * (most + 1), plain, plain)
        draft = [draft_seconds] * (most + 1) if self.draft.empty else self.draft.table(most)
        return Rates(cost, draft, plain, max(plain, late))


class Start:
    """The first rounds, in which the number of candidates is given."""

    def __init__(self) -> None:
        self._place = 0
        self._patience = PATIENCE

    @property
    def over(self) -> bool:
        """Whether enough is known to decide."""
        return self._place >= len(START)

    def asks(self, *, hopeless: bool) -> bool:
        """Whether the draft is asked in this round. hopeless: it costs more than it can bring."""
        if START[self._place] and not hopeless:
            return True
        self._place += 1
        return False

    def take(self, most: int, *, failed: bool) -> int:
        """How many of ``most`` candidates are offered."""
        nodes = START[self._place]
        self._patience -= 1
        if most or failed or self._patience <= 0:
            self._place += 1
            self._patience = PATIENCE
        return min(nodes, most)
