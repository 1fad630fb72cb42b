"""A smaller model of the same kind and vocabulary as a draft."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.adapters.checks import check_integers, check_probability
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_NODES
from specla.errors import LifecycleError, OptionError, SpeclaError

if TYPE_CHECKING:
    from specla.models.draft_target import DraftTarget
    from specla.models.load import ModelFile
    from specla.models.qwen35.parts import TargetParts


@dataclass(frozen=True)
class ChainOptions:
    """Options of the chain adapter.

    draft: GGUF of the draft model, any `qwen35` with the target's token list.  depth: longest
    draft.  p_min: stop before the first token whose probability, by the draft, is less.
    """

    draft: str
    depth: int = 4
    p_min: float = 0.0

    def __post_init__(self) -> None:
        check_integers("chain", self, depth=(1, MAX_NODES))
        check_probability("chain", self, "p_min")


class ChainAdapter(Adapter):
    """Proposes the draft model's own greedy continuation.

    What is drafted is a function of the text alone: rejected tokens leave nothing behind.
    """

    Options = ChainOptions

    def __init__(self, options: Any) -> None:
        """Opens the draft's file; loads nothing yet.

        Raises OptionError, one line, when it can't serve as a draft.
        """
        super().__init__(options)
        self._model = _opened(options.draft)
        self._parts: TargetParts | None = None
        self._draft: DraftTarget | None = None

    def needs(self) -> Needs:
        """Nothing to compute with, but to know how much room the target makes."""
        return Needs(parts=True)

    def bind(self, target: TargetInfo) -> None:
        """Load the draft. Raises OptionError when its vocabulary isn't the target's.

        Binding to the same target again changes nothing.
        """
        from specla.models.draft_target import DraftTarget

        parts = target.parts
        if parts is None:
            raise OptionError("adapter 'chain' needs the target's parts; bind it through specla")
        if self._parts is not None and self._parts.output_norm is parts.output_norm:
            return
        _check_vocabulary(self.options.draft, self._model, target)
        self._draft = DraftTarget(self._model, target.backend, parts.options, self.options.depth)
        self._parts = parts

    def open(self, view: SequenceView) -> None:
        """Make room for the sequence; a sequence opened again starts from scratch."""
        self._bound.open(view.key)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One chain per view."""
        return [self._propose(view) for view in views]

    def close(self, view: SequenceView) -> None:
        """Give the sequence's room back."""
        if self._draft is not None:
            self._draft.close(view.key)

    @property
    def _bound(self) -> DraftTarget:
        if self._draft is None:
            raise LifecycleError("adapter 'chain' drafts only after bind(); bind a target")
        return self._draft

    def _propose(self, view: SequenceView) -> Proposal:
        depth = min(self.options.depth, view.budget, view.max_depth)
        tokens: list[int] = []
        log_probs: list[float] = []
        with closing(self._bound.draft(view.key, view.tokens, depth)) as guesses:
            for guess in guesses:
                # not "<": a log-probability that is NaN ends the draft too
                if not math.exp(guess.log_prob) >= self.options.p_min:
                    break
                tokens.append(guess.token)
                log_probs.append(guess.log_prob)
        return Proposal.chain(tokens, log_probs)


def _opened(path: str) -> ModelFile:
    from specla.models.load import open_model

    try:
        return open_model(path)
    except SpeclaError as error:
        raise OptionError(f"adapter 'chain': draft {error}") from error


def _check_vocabulary(draft: str, model: ModelFile, target: TargetInfo) -> None:
    """Raise OptionError unless tokens mean the same to both."""
    config = model.config
    if config.vocab_size > target.vocab_size:
        raise OptionError(
            f"adapter 'chain': draft {draft!r} has {config.vocab_size} tokens, the target only "
            f"{target.vocab_size}; use a draft of the target's family"
        )
    known = None not in (config.vocabulary, target.vocabulary)
    if known and config.vocabulary != target.vocabulary:
        raise OptionError(
            f"adapter 'chain': draft {draft!r} has another token list than the target; "
            f"use a draft of the target's family"
        )
