"""What a run of the fuzzer has played so far, and how much of what there is."""

from __future__ import annotations

from dataclasses import dataclass, field

from specla.fuzz.world import Operation, Setup


@dataclass(frozen=True)
class Case:
    """A setup and what was played on it."""

    setup: Setup
    operations: tuple[Operation, ...]


@dataclass
class Log:
    """Counts over all examples. pairs: kinds of operations that followed one another.

    failing, error: the last case that ended with one; Hypothesis plays the smallest one last.
    """

    examples: int = 0
    rounds: int = 0
    operations: int = 0
    kinds: set[type] = field(default_factory=set)
    pairs: set[tuple[type, type]] = field(default_factory=set)
    failing: Case | None = None
    error: BaseException | None = None
    _setup: Setup | None = None
    _played: list[Operation] = field(default_factory=list)

    def begin(self, setup: Setup) -> None:
        """An example starts."""
        self.examples += 1
        self._setup, self._played = setup, []

    def starts(self, operation: Operation) -> None:
        """An operation is about to be played."""
        kind = type(operation)
        if self._played:
            self.pairs.add((type(self._played[-1]), kind))
        self._played.append(operation)
        self.kinds.add(kind)
        self.operations += 1

    def ended(self, rounds: int) -> None:
        """It was played, and took so many rounds of verification."""
        self.rounds += rounds

    def failed(self, error: BaseException) -> None:
        """What was played last ended with an error."""
        if self._setup is not None:
            self.error = error
            self.failing = Case(self._setup, tuple(self._played))
