"""What is decided from round to round of one sequence."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

from specla.adapters.adaptive.cost_curve import CostCurve
from specla.adapters.adaptive.gate import Gate
from specla.adapters.adaptive.measured import Measured
from specla.adapters.adaptive.plan import Plan, Rates, best_plan
from specla.core.topology import MAX_NODES

FIRST_ASK = 8
"""Candidates that the draft is asked for at first."""

SPARE = 0.2
"""Part of a round's time for which more candidates are asked of the draft than are worth it on
average; for nothing, all that are within reach. A draft that goes token by token is asked for
few."""

REACH = 4
"""Times the candidates seen so far that are asked for at most."""

CHANCE_WEIGHT = 0.2
"""Of the latest round in the average chances of the best candidate, the next, and so on."""

SPARE_DEPTH = 8
USED_DECAY = 0.85
"""A draft that costs something is asked for candidates a little deeper than was worth it lately: as
much as ``SPARE`` allows, and at most ``SPARE_DEPTH`` beyond the deepest one. A depth that isn't
worth it any more is forgotten at the rate ``USED_DECAY``."""

RECENT = 0.9
"""Weight of the round before in the rate at which tokens come; the rounds after count more."""

STALE = 24
"""A row count that was measured so many samples ago may be measured again."""

EXPLORED = (1, 2, 3, 5, 9, 13, 17, 23, 33, 49, 65)
"""Row counts that are measured now and then, if they are within reach."""

MAX_CREDIT = 3.0
"""Tokens that may be lost on a single measurement."""


class Course:
    """ask, depth: candidates that the draft is asked for next, and how deep.  late: tokens per
    second of late, 0 if unknown."""

    def __init__(self, gate: Gate, share: float) -> None:
        self.gate = gate
        self.ask = FIRST_ASK
        self.depth = MAX_NODES
        self._used = 0.0
        self._share = share
        self._credit = 0.0
        self._tokens = 0.0
        self._seconds = 0.0
        # average chances of the best candidate, the next, and so on
        self._usual: list[float] = []

    @property
    def late(self) -> float:
        """Tokens per second of late, 0 if unknown."""
        return self._tokens / self._seconds if self._seconds > 0 else 0.0

    def went(self, tokens: int, seconds: float) -> None:
        """A round brought so many tokens and usually takes so long."""
        self._credit = min(self._credit + self._share * tokens, MAX_CREDIT)
        self._tokens = RECENT * self._tokens + tokens
        self._seconds = RECENT * self._seconds + seconds

    def explore(self, plan: Plan, chances: list[float], rates: Rates, cost: CostCurve) -> int:
        """The plan's number of candidates, or one whose cost was measured too long ago, if what
        is lost by that was saved up before."""
        choice, oldest, price = plan.nodes, STALE, 0.0
        for rows in EXPLORED:
            if rows > len(chances) + 1:
                break
            age = cost.age(rows)
            age = 10 * STALE if age is None else age
            if age <= oldest:
                continue
            loss = plan.gain - rates.gain(rows - 1, sum(chances[: rows - 1]))
            if loss <= self._credit:
                choice, oldest, price = rows - 1, age, loss
        self._credit -= max(price, 0.0)
        return choice

    def plan_ask(self, chances: list[float], budget: int, rates: Rates, measured: Measured) -> None:
        """Ask next for as many candidates as are worth their draft on average, and some to
        spare."""
        if not chances:
            return
        usual = self._usual
        for rank, chance in enumerate(chances[: len(usual)]):
            usual[rank] += CHANCE_WEIGHT * (chance - usual[rank])
        usual += chances[len(usual) :]
        if not measured.ready or budget < len(usual):
            return
        budget = min(budget, REACH * len(usual))
        draft = measured.draft.table(budget)
        cost = measured.cost.table(len(usual) + 1)
        nodes = best_plan(usual, replace(rates, cost=cost, draft=draft), draft=True).nodes
        most = draft[nodes] + SPARE * (draft[nodes] + cost[nodes])
        ask = min(nodes + 1, budget)
        while ask < budget and draft[ask + 1] <= most:
            ask += 1
        self.ask = ask

    def plan_depth(
        self, chances: list[float], depths: list[int], rates: Rates, measured: Measured
    ) -> None:
        """Ask next for candidates a little deeper than those that were worth their draft lately.

        depths: of the candidates, in the order of their chances.
        """
        if not chances or measured.deep.empty or measured.cost.empty:
            return
        # of a tree of the best m candidates
        deepest = [0, *accumulate(depths, max)]
        most = deepest[-1] + SPARE_DEPTH
        seconds = measured.deep.table(most)
        rates = replace(rates, draft=[seconds[depth] for depth in deepest])
        nodes = best_plan(chances, rates, draft=True).nodes
        self._used = max(float(deepest[nodes]), self._used * USED_DECAY)
        depth = min(int(self._used) + 1, most)
        affordable = seconds[depth - 1] + SPARE * (seconds[depth - 1] + rates.cost[nodes])
        while depth < most and seconds[depth + 1] <= affordable:
            depth += 1
        self.depth = depth
