"""An alarm for state that drifts while acceptance looks fine, or better than fine.

A wrong state is silent: text still comes out. Where it makes the model repeat itself, the draft
predicts the repetition and acceptance *rises*, so that the fault looks like a gain. Hence two
figures belong together: the accept length of a round, and whether its state was the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specla.errors import OptionError


@dataclass(frozen=True)
class Difference:
    """The first round that differed from plain decoding.

    round: counted from 1.  where: the caller's words (sequence, position).  names: what differed.
    """

    round: int
    where: str
    names: tuple[str, ...]


class DriftAlarm:
    """Told of every round; knows whether to go on, and what to say.

    subject: what is watched, for the report.  keep_going: rounds to go on for after the first
    difference, to see what acceptance does then. The round of the first difference counts neither
    as before nor as after it.

        alarm = DriftAlarm("my engine", keep_going=200)
        while alarm.told(accept_length, names_of_arrays_that_differ):
            ...  # another round
        print(alarm.report())

    Raises OptionError for a negative ``keep_going``.
    """

    def __init__(self, subject: str, keep_going: int = 0) -> None:
        if keep_going < 0:
            raise OptionError(f"keep_going is {keep_going}; it must be 0 or more rounds")
        self.subject = subject
        self.first: Difference | None = None
        self.rounds = 0
        self.differing = 0
        self._keep_going = keep_going
        self._before: list[int] = [0, 0]
        self._after: list[int] = [0, 0]

    def told(self, accept_length: int, differing: Sequence[str] = (), where: str = "") -> bool:
        """One round: tokens that it committed, and names of what differs; whether to go on."""
        self.rounds += 1
        if differing:
            self.differing += 1
        if self.first is not None:
            _count(self._after, accept_length)
        elif differing:
            self.first = Difference(self.rounds, where, tuple(differing))
        else:
            _count(self._before, accept_length)
        return self.first is None or self._after[0] < self._keep_going

    @property
    def before(self) -> float | None:
        """Mean accept length of the rounds before the first difference; None without any."""
        return _mean(self._before)

    @property
    def after(self) -> float | None:
        """Mean accept length of the rounds after the first difference; None without any."""
        return _mean(self._after)

    @property
    def rose(self) -> bool:
        """Whether acceptance went up after the first difference."""
        return self.before is not None and self.after is not None and self.after > self.before

    def report(self) -> str:
        """Empty while all is well; else a line on the first difference, and one on acceptance if
        rounds came after it: in capitals if it rose."""
        if self.first is None:
            return ""
        where = f", {self.first.where}" if self.first.where else ""
        lines = [
            f"ALARM: {self.subject}: round {self.first.round}{where}: differs from plain decoding: "
            f"{', '.join(self.first.names)}"
        ]
        if self.after is not None:
            before = "-" if self.before is None else f"{self.before:.3f}"
            figures = (
                f"accept length {before} in {self._before[0]} rounds before, {self.after:.3f} "
                f"in {self._after[0]} rounds after; {self.differing} rounds differed"
            )
            if self.rose:
                loud = "STATE IS CORRUPT AND ACCEPTANCE ROSE: THIS IS NO SPEED-UP"
                lines.append(f"ALARM: {self.subject}: {loud}: {figures}")
            else:
                lines.append(f"ALARM: {self.subject}: {figures}")
        return "\n".join(lines)


def _count(totals: list[int], accept_length: int) -> None:
    totals[0] += 1
    totals[1] += accept_length


def _mean(totals: list[int]) -> float | None:
    return totals[1] / totals[0] if totals[0] else None
