"""What the fuzzer plays: a setup makes a world, operations act on it."""

from __future__ import annotations

from typing import Any, Protocol


class World(Protocol):
    """Sequences under test, and what plain decoding says of them.

    rounds: of verification so far.
    """

    @property
    def rounds(self) -> int:
        """See the class."""

    def finish(self) -> None:
        """The last checks; then give everything back. Raises FoundError."""


class Setup(Protocol):
    """A frozen dataclass whose ``repr`` is the code that makes it."""

    def build(self, backend: str) -> World:
        """A fresh world that computes on the backend of this name."""


class Operation(Protocol):
    """A frozen dataclass of plain values whose ``repr`` is the code that makes it.

    It names sequences by number, modulo how many there are, and does nothing where it makes no
    sense: a list of operations of which some were removed can still be played.
    """

    def play(self, world: Any) -> None:
        """Do it and check every claim. Raises FoundError."""
