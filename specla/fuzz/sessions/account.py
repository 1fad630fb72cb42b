"""What the driver itself knows of one session: its text, and what is asked of it right now."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from specla.core.sampling import Sampler
from specla.engine import Session
from specla.fuzz.demand import demand
from specla.fuzz.sessions.wishes import CallerError
from specla.request import Stop, TokenEvent

if TYPE_CHECKING:
    from specla.fuzz.sessions.watcher import Watcher


class Progress:
    """Listens to a session's prefills. done: tokens of the present one.  fails_at: the call that
    raises CallerError."""

    def __init__(self) -> None:
        self.done = 0
        self.fails_at: int | None = None

    def __call__(self, done: int, total: int) -> None:
        demand(self.done < done <= total, f"told of {done} of {total} tokens after {self.done}")
        self.done = done
        if self.fails_at is not None:
            self.fails_at -= 1
            if self.fails_at < 0:
                self.fails_at = None
                raise CallerError("prefill")


@dataclass(eq=False)
class Running:
    """A generation that has not ended.

    sampler: plain, as the oracle is to use it.  stop_at, cancel_at: the call of the stop rule that
    stops, or cancels.  told: tokens that the rule was told.  rows: positions whose logits came.
    start: length of the text when it began, None before that.  stop: on the last event.
    cancelled: cancel() was called.
    """

    generator: Generator[TokenEvent, None, None]
    sampler: Sampler
    max_tokens: int
    budget: int
    stop_ids: frozenset[int]
    stop_at: int
    cancel_at: int
    has_rule: bool
    wants_logits: bool
    told: list[int] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    start: int | None = None
    stop: Stop | None = None
    cancelled: bool = False


@dataclass(eq=False)
class Account:
    """One session. tokens: prompt and text so far, the root last.

    floor: length of the text up to the last round that was settled.  uncertain: shortest and
    longest text that it may have after a failure, until the session is used again; then ``tokens``
    is the longest.  may_break, broken: whether the failure may have left it BROKEN, whether it did.
    trouble: what may go wrong at any moment (a kind of Trouble).
    given: tokens of the text that nobody generated.  asked, prefilled: what the statistics must
    say; inexact: a failure may have kept them from it.
    cancelled: cancel() was called without a generation.
    """

    session: Session
    watcher: Watcher
    prefill: Progress
    verifier: str
    tokens: list[int]
    running: Running | None = None
    floor: int = 0
    uncertain: tuple[int, int] | None = None
    may_break: bool = False
    broken: bool = False
    trouble: str = "none"
    given: int = 0
    asked: int = 0
    prefilled: int = 0
    inexact: bool = False
    cancelled: bool = False

    @property
    def idle(self) -> bool:
        """Whether the text and state can be looked at: nothing is under way."""
        return self.running is None and self.uncertain is None and not self.broken

    def resolve(self, length: int) -> None:
        """The session was used again after a failure, and has so many tokens."""
        if self.uncertain is None:
            return
        low, high = self.uncertain
        demand(
            low <= length <= high,
            f"a text of {length} tokens after a failure; {low}..{high} were possible",
        )
        self.uncertain = None
        del self.tokens[length:]
        self.floor = length
