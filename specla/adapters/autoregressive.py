"""What the adapters share whose draft model guesses a chain, token by token."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from specla.adapters.base import Adapter, TargetInfo
from specla.core.proposal import Proposal, SequenceView
from specla.errors import LifecycleError, OptionError, SpeclaError

if TYPE_CHECKING:
    from specla.models.qwen35.parts import TargetParts


class Guess(Protocol):
    """A drafted token. confidence: what the option ``p_min`` is compared with."""

    @property
    def token(self) -> int: ...
    @property
    def log_prob(self) -> float: ...
    @property
    def confidence(self) -> float: ...


class Drafter(Protocol):
    """A loaded draft model that keeps something per sequence."""

    def open(self, key: int) -> None: ...
    def close(self, key: int) -> None: ...


D = TypeVar("D", bound=Drafter)
Opened = TypeVar("Opened")


class AutoregressiveAdapter(Adapter, Generic[D]):
    """Base class. Options: ``depth``, the longest draft, and ``p_min``, where it ends.

    What is drafted is a function of the text alone: rejected tokens leave nothing behind.
    """

    name: ClassVar[str]

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._parts: TargetParts | None = None
        self._draft: D | None = None

    @abstractmethod
    def load(self, target: TargetInfo, parts: TargetParts) -> D:
        """The draft model for a target. Raises OptionError where the two don't fit."""

    @abstractmethod
    def guesses(self, view: SequenceView, depth: int) -> Generator[Guess, None, None]:
        """At most ``depth`` tokens after the root, each drafted when it is asked for."""

    def bind(self, target: TargetInfo) -> None:
        """Load the draft model. Raises OptionError when it doesn't fit.

        Binding to the same target again changes nothing.
        """
        parts = target.parts
        if parts is None:
            raise OptionError(
                f"adapter {self.name!r} needs the target's parts; bind it through specla"
            )
        if self._parts is not None and self._parts.output_norm is parts.output_norm:
            return
        self._draft = self.load(target, parts)
        self._parts = parts

    def open(self, view: SequenceView) -> None:
        """Make room for the sequence; a sequence opened again starts from scratch."""
        self.drafter.open(view.key)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One chain per view."""
        return [self._propose(view) for view in views]

    def close(self, view: SequenceView) -> None:
        """Give the sequence's room back."""
        if self._draft is not None:
            self._draft.close(view.key)

    @property
    def drafter(self) -> D:
        """The draft model. Raises LifecycleError before ``bind``."""
        if self._draft is None:
            raise LifecycleError(f"adapter {self.name!r} drafts only after bind(); bind a target")
        return self._draft

    def _propose(self, view: SequenceView) -> Proposal:
        depth = min(self.options.depth, view.budget, view.max_depth)
        tokens: list[int] = []
        log_probs: list[float] = []
        with closing(self.guesses(view, depth)) as guesses:
            for guess in guesses:
                # not "<": a confidence that is NaN ends the draft too
                if not guess.confidence >= self.options.p_min:
                    break
                tokens.append(guess.token)
                log_probs.append(guess.log_prob)
        return Proposal.chain(tokens, log_probs)


def opened(adapter: str, open_file: Callable[[str], Opened], path: str) -> Opened:
    """A draft's file. Raises OptionError, one line, when it can't serve as a draft."""
    try:
        return open_file(path)
    except SpeclaError as error:
        raise OptionError(f"adapter {adapter!r}: draft {error}") from error


def check_vocabulary(
    adapter: str, draft: str, vocabulary: str | None, target: TargetInfo, remedy: str
) -> None:
    """Raise OptionError where both token lists are known and differ. vocabulary: the draft's."""
    if None not in (vocabulary, target.vocabulary) and vocabulary != target.vocabulary:
        raise OptionError(
            f"adapter {adapter!r}: draft {draft!r} has another token list than the target; {remedy}"
        )
