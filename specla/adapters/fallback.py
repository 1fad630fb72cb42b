"""Several adapters in order of preference: the first that has a proposal makes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from specla.adapters.base import Adapter
from specla.adapters.combinator import Combinator, Part, reason
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.errors import ProposalError


@dataclass
class _Round:
    """Who was asked for a sequence, and what came of it. told: whose proposal was verified."""

    asked: list[int] = field(default_factory=list)
    told: int | None = None
    refused: dict[int, str] = field(default_factory=dict)


class FallbackAdapter(Combinator):
    """Asks its inner adapters in turn until one proposes something.

    One that fails, or whose proposal is malformed, counts as one without a proposal: the next is
    asked. Nothing is hidden by that: the failure is raised from ``observe`` of the same round, so
    that the engine counts and names it among the adapter errors, and ``report`` counts it too.

    An inner adapter is told the outcomes of its own proposals only: of the one that was verified;
    of an empty one in a round in which nobody proposed anything; and of a malformed one, as
    refused. Whoever else was or wasn't asked learns from the text.
    """

    arity: ClassVar[tuple[int, int | None]] = (1, None)

    def __init__(
        self,
        options: Any = None,
        inner: Sequence[Adapter] = (),
        names: Sequence[str] | None = None,
    ) -> None:
        super().__init__(options, inner, names)
        self._rounds: dict[int, _Round] = {}
        self._proposed = [0] * len(self.parts)
        self._failed = [0] * len(self.parts)

    def open(self, view: SequenceView) -> None:
        """A sequence begins, for all inner adapters."""
        self._rounds.pop(view.key, None)
        super().open(view)

    def close(self, view: SequenceView) -> None:
        """The sequence is over, for all inner adapters."""
        self._rounds.pop(view.key, None)
        super().close(view)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """Of each view the first proposal that is well-formed and not empty, or an empty one."""
        result = [Proposal() for _ in views]
        for view in views:
            self._rounds[view.key] = _Round()
        waiting = list(range(len(views)))
        for number, part in enumerate(self.parts):
            if not waiting:
                break
            waiting = self._ask(number, part, views, waiting, result)
        return result

    def _ask(
        self,
        number: int,
        part: Part,
        views: Sequence[SequenceView],
        waiting: list[int],
        result: list[Proposal],
    ) -> list[int]:
        """Put the proposals of one adapter into ``result``; returns the views without one."""
        try:
            proposals = part.propose([views[i] for i in waiting])
        except ProposalError as error:
            for i in waiting:
                self._refuse(views[i], number, str(error))
            return waiting
        left = []
        for i, proposal in zip(waiting, proposals, strict=True):
            round_ = self._rounds[views[i].key]
            try:
                proposal = part.checked(proposal, views[i])
            except ProposalError as error:
                self._refuse(views[i], number, str(error))
                left.append(i)
                continue
            round_.asked.append(number)
            if proposal.tokens:
                result[i] = proposal
                round_.told = number
                self._proposed[number] += 1
            else:
                left.append(i)
        return left

    def _refuse(self, view: SequenceView, number: int, why: str) -> None:
        self._rounds[view.key].refused[number] = why
        self._failed[number] += 1

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """Raises ProposalError for all that failed in this round, after all were told."""
        failures: list[str] = []
        for view, outcome in zip(views, outcomes, strict=True):
            round_ = self._rounds.pop(view.key, None)
            if round_ is None:
                continue  # a round without room for candidates: nobody was asked
            failures += round_.refused.values()
            for number, own in self._outcomes(round_, view, outcome):
                part = self.parts[number]
                try:
                    part.observe([view], [own])
                except Exception as error:
                    failures.append(reason(part.name, "observe", error))
        if failures:
            raise ProposalError("; ".join(failures))

    @staticmethod
    def _outcomes(
        round_: _Round, view: SequenceView, outcome: Outcome
    ) -> list[tuple[int, Outcome]]:
        told = round_.asked if round_.told is None else [round_.told]
        result = [(number, outcome) for number in told]
        if round_.refused:
            # nothing of a refused proposal is accepted; what came after the root is in the text
            bonus = view.tokens[-len(outcome.accepted) - 1]
            for number, why in round_.refused.items():
                result.append((number, Outcome((), bonus, why, outcome.rows, outcome.seconds)))
        return sorted(result, key=lambda pair: pair[0])

    def report(self) -> dict[str, Any]:
        """How often each inner adapter proposed and failed, and what it reports itself."""
        report = super().report()
        for i, inner in enumerate(report["inner"]):
            inner |= {"proposed": self._proposed[i], "failed": self._failed[i]}
        return report
