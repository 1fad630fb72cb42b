"""Speculation where it pays, as much as pays: measured, not configured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, ClassVar

from specla.adapters.adaptive.cost_curve import CostCurve
from specla.adapters.adaptive.course import FIRST_ASK, Course
from specla.adapters.adaptive.gate import Gate
from specla.adapters.adaptive.measured import Measured, Start
from specla.adapters.adaptive.plan import Plan, Rates, best_plan, depths_of, part_of, ranking
from specla.adapters.adaptive.survival import Scored, Survival
from specla.adapters.base import Adapter, TargetInfo
from specla.adapters.checks import check_integers, check_number
from specla.adapters.combinator import Combinator, reason
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.errors import ProposalError

PROBE_NODES = 3
"""Fewest candidates that a probe offers: without any, nothing can be learned."""

CHEAP = 0.02
"""Tokens of plain decoding: a draft that costs less is asked in pauses, too."""

MAX_PROBE = 1_000_000


@dataclass(frozen=True)
class AdaptiveOptions:
    """Options of the adaptive adapter.

    margin: speculation must promise to be faster than plain decoding by this part.  share: part
    of the tokens that probing in pauses, and measuring other row counts, may each cost.  probe:
    rounds of the longest pause, whatever a probe costs.
    """

    margin: float = 0.08
    share: float = 0.01
    probe: int = 512

    def __post_init__(self) -> None:
        check_integers("adaptive", self, probe=(1, MAX_PROBE))
        check_number("adaptive", self, "margin", 0.0, 10.0)
        check_number("adaptive", self, "share", 0.0001, 0.5)


@dataclass
class _Round:
    """A round in which the draft was asked.

    kept: numbers, in the inner proposal, of the candidates that were offered.  drafted: how many
    there were.  depth: of the deepest.  draft_seconds: what asking took.  probe: whether it was a
    probe.  why: why the inner proposal can't be used.
    """

    kept: list[int] = field(default_factory=list)
    drafted: int = 0
    depth: int = 0
    draft_seconds: float = 0.0
    scored: Scored | None = None
    probe: bool = False
    why: str | None = None


class AdaptiveAdapter(Combinator):
    """Offers the best candidates of its inner adapter, as many as make decoding fastest.

    Each candidate's chance is estimated from what the draft says and what was accepted lately
    (survival.py), the time of a step from what steps took lately (cost_curve.py). The m most
    likely candidates then promise 1 + the sum of their chances tokens for the time of m + 1 rows;
    what is offered maximises the gain over the rate reached lately (plan.py). When that gains
    nothing, text is decoded plainly, without asking the draft, with probes now and then (gate.py).

    The inner adapter is told the outcomes of the rounds in which it was asked. If it fails, the
    round is decoded plainly and the failure raised from ``observe``, which counts and names it.

    clock: for tests.
    """

    Options = AdaptiveOptions
    arity: ClassVar[tuple[int, int | None]] = (1, 1)
    deterministic = False

    def __init__(
        self,
        options: Any = None,
        inner: Sequence[Adapter] = (),
        names: Sequence[str] | None = None,
        *,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        super().__init__(options if options is not None else AdaptiveOptions(), inner, names)
        self._clock = clock
        self._margin: float = self.options.margin
        self._share: float = self.options.share
        (self._part,) = self.parts
        self._target: tuple[Any, ...] | None = None
        self._courses: dict[int, Course] = {}
        self._rounds: dict[int, _Round] = {}
        self._forget()

    def _forget(self) -> None:
        """Everything measured: it holds for one target only."""
        self._survival = Survival()
        self._measured = Measured()
        self._start = Start()
        self._plan = Plan(0, 1.0, 0.0)
        self._pausing = False
        self._counts = {"plain": 0, "drafted": 0, "probes": 0, "measuring": 0}

    def bind(self, target: TargetInfo) -> None:
        """Another target costs and accepts differently: what was measured is forgotten."""
        known = (target.backend, target.n_layers, target.d_model, target.vocabulary)
        if self._target is not None and known != self._target:
            self._forget()
        self._target = known
        super().bind(target)

    def open(self, view: SequenceView) -> None:
        """A sequence begins; what was measured with earlier ones is used."""
        self._drop(view.key)
        super().open(view)

    def close(self, view: SequenceView) -> None:
        """The sequence is over."""
        self._drop(view.key)
        super().close(view)

    def _drop(self, key: int) -> None:
        """Forget what belongs to one sequence."""
        self._courses.pop(key, None)
        self._rounds.pop(key, None)

    def _course(self, view: SequenceView) -> Course:
        course = self._courses.get(view.key)
        if course is None:
            gate = Gate(self.options.probe, self._share)
            course = self._courses[view.key] = Course(gate, self._share)
        return course

    # -- propose ---------------------------------------------------------------------------------

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """Per view a part of the inner proposal, in its order; empty to decode plainly."""
        result = [Proposal() for _ in views]
        asked = []
        for i, view in enumerate(views):
            self._rounds.pop(view.key, None)
            if self._is_asked(self._course(view)):
                asked.append(i)
            else:
                self._counts["plain"] += 1
        if asked:
            for i, proposal in zip(asked, self._ask([views[i] for i in asked]), strict=True):
                result[i] = proposal
        return result

    def _is_asked(self, course: Course) -> bool:
        if not self._start.over:
            # as many tokens as it proposes, if not more
            known = self._measured.ready
            hopeless = known and self._measured.draft_tokens(FIRST_ASK) >= FIRST_ASK
            return self._start.asks(hopeless=hopeless)
        gate = course.gate
        if not gate.closed or gate.probing:
            return True
        gate.wait()
        return self._is_cheap(course)

    def _is_cheap(self, course: Course) -> bool:
        """Whether asking the draft costs next to nothing, so that it is done in pauses, too."""
        return self._measured.draft_tokens(course.ask) <= CHEAP

    def _ask(self, views: list[SequenceView]) -> list[Proposal]:
        inner = [self._cut(view) for view in views]
        start = self._clock()
        try:
            proposals, why = self._part.propose(inner), None
        except ProposalError as error:
            proposals, why = [Proposal()] * len(views), str(error)
        seconds = (self._clock() - start) / len(views)
        result = []
        for view, cut, proposal in zip(views, inner, proposals, strict=True):
            round_ = self._rounds[view.key] = _Round(draft_seconds=seconds, why=why)
            self._counts["drafted"] += 1
            if why is None:
                try:
                    proposal = self._part.checked(proposal, cut)
                except ProposalError as error:
                    round_.why, proposal = str(error), Proposal()
            result.append(self._offer(self._course(view), round_, proposal, view))
        return result

    def _cut(self, view: SequenceView) -> SequenceView:
        """The view that the draft gets: no more candidates, and no deeper, than may be worth it."""
        course = self._course(view)
        depth = view.max_depth if self._is_cheap(course) else min(view.max_depth, course.depth)
        return replace(view, budget=min(view.budget, course.ask), max_depth=depth)

    def _offer(
        self, course: Course, round_: _Round, proposal: Proposal, view: SequenceView
    ) -> Proposal:
        """The part of a proposal that is worth verifying."""
        round_.scored = scored = self._survival.score(proposal.parents, proposal.log_probs)
        round_.drafted = len(proposal.tokens)
        depths = depths_of(proposal.parents)
        round_.depth = max(depths, default=0)
        order = ranking(scored.chances, depths, view.max_depth)
        chances = [scored.chances[i] for i in order]
        rates = self._measured.rates(len(order), round_.draft_seconds, course.late)
        self._plan = best_plan(chances, rates)
        count = self._count(course, round_, chances, rates)
        course.plan_ask(chances, view.budget, rates, self._measured)
        course.plan_depth(chances, [depths[i] for i in order], rates, self._measured)
        round_.kept = sorted(order[:count])
        if count == len(proposal.tokens):
            return proposal
        return part_of(proposal, round_.kept)

    def _count(self, course: Course, round_: _Round, chances: list[float], rates: Rates) -> int:
        """How many candidates are offered: those of the plan, unless there is more to learn."""
        plan, gate = self._plan, course.gate
        if not self._start.over:
            return self._start.take(len(chances), failed=round_.why is not None)
        probe = min(PROBE_NODES, len(chances))
        if gate.probing:
            # one that has nothing to say tells nothing, and may be asked again if that is cheap
            if chances or not self._is_cheap(course):
                round_.probe = True
                self._counts["probes"] += 1
            return max(plan.nodes, probe)
        if gate.closed:
            return plan.nodes
        loss = -rates.gain(probe, sum(chances[:probe]), draft=True)
        gate.gained(self._promise(chances, rates), max(loss, 0.0))
        count = course.explore(plan, chances, rates, self._measured.cost)
        self._counts["measuring"] += count != plan.nodes
        return count

    def _promise(self, chances: list[float], rates: Rates) -> float:
        """Tokens that speculation gains over plain decoding, less the margin."""
        plan = best_plan(chances, replace(rates, late=rates.plain), draft=True)
        seconds = rates.cost[plan.nodes] + rates.draft[plan.nodes]
        return plan.tokens / (1.0 + self._margin) - rates.plain * seconds

    # -- observe ---------------------------------------------------------------------------------

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """Learn from the round. Raises ProposalError if the inner adapter failed in it."""
        failures: list[str] = []
        for view, outcome in zip(views, outcomes, strict=True):
            course, round_ = self._course(view), self._rounds.pop(view.key, None)
            self._measured.cost.add(outcome.rows, outcome.seconds)
            if round_ is None:
                self._survival.idle()
            else:
                self._settle(round_, view, outcome, failures)
            tokens = len(outcome.accepted) + 1
            # as such rounds usually take: this one may have been slow for reasons of its own
            drafted = None if round_ is None else round_.drafted
            seconds = self._measured.round_seconds(max(outcome.rows, 1), drafted)
            if round_ is not None and round_.probe:
                self._judge(course.gate, tokens, seconds)
            course.went(tokens, seconds)
            self._pausing = course.gate.closed
        if failures:
            raise ProposalError("; ".join(failures))

    def _settle(
        self, round_: _Round, view: SequenceView, outcome: Outcome, failures: list[str]
    ) -> None:
        """Learn from a round with a draft and tell the inner adapter."""
        if round_.why is not None:
            failures.append(round_.why)
        accepted = tuple(round_.kept[i] for i in outcome.accepted)
        refused = outcome.refused if round_.why is None else round_.why
        if round_.kept and refused is None and round_.scored is not None:
            self._survival.learn(round_.scored, round_.kept, accepted)
        else:
            self._survival.idle()
        start = self._clock()
        try:
            self._part.observe([view], [replace(outcome, accepted=accepted, refused=refused)])
        except Exception as error:
            failures.append(reason(self._part.name, "observe", error))
        seconds = round_.draft_seconds + self._clock() - start
        self._measured.draft.add(round_.drafted, seconds)
        self._measured.deep.add(round_.depth, seconds)

    def _judge(self, gate: Gate, tokens: int, seconds: float) -> None:
        """A probe is over: was it better than plain decoding?"""
        plain = seconds / self._measured.plain()
        won = tokens > plain * (1.0 + self._margin)
        gate.probed(won, max(plain - tokens, 0.0))
        if won:
            # the draft is better than was known
            self._survival.forget()

    def report(self) -> dict[str, Any]:
        """The present decision, what it rests on, and how the rounds were spent."""
        return {
            "candidates": self._plan.nodes,
            "expected_tokens": round(self._plan.tokens, 3),
            "pausing": self._pausing,
            "rounds": dict(self._counts),
            "step_ms_by_rows": _milliseconds(self._measured.cost),
            "draft_ms_by_candidates": _milliseconds(self._measured.draft),
            "accepted_over_stated": self._survival.report(),
            **super().report(),
        }


def _milliseconds(curve: CostCurve) -> dict[int, float]:
    return {n: round(1000 * seconds, 4) for n, seconds in curve.measured().items()}
