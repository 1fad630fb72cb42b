"""A smaller model of the same kind and vocabulary as a draft."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specla.adapters.autoregressive import AutoregressiveAdapter, check_vocabulary, opened
from specla.adapters.base import Needs, TargetInfo
from specla.adapters.checks import check_integers, check_probability
from specla.core.proposal import SequenceView
from specla.core.topology import MAX_NODES
from specla.errors import OptionError

if TYPE_CHECKING:
    from specla.models.draft_target import DraftGuess, DraftTarget
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


class ChainAdapter(AutoregressiveAdapter["DraftTarget"]):
    """Proposes the draft model's own greedy continuation."""

    name = "chain"
    Options = ChainOptions

    def __init__(self, options: Any) -> None:
        """Opens the draft's file; loads nothing yet.

        Raises OptionError, one line, when it can't serve as a draft.
        """
        from specla.models.load import open_model

        super().__init__(options)
        self._model = opened(self.name, open_model, options.draft)

    def needs(self) -> Needs:
        """Nothing to compute with, but to know how much room the target makes."""
        return Needs(parts=True)

    def load(self, target: TargetInfo, parts: TargetParts) -> DraftTarget:
        """Raises OptionError when the draft's vocabulary isn't the target's."""
        from specla.models.draft_target import DraftTarget

        config, options = self._model.config, self.options
        remedy = "use a draft of the target's family"
        if config.vocab_size > target.vocab_size:
            raise OptionError(
                f"adapter 'chain': draft {options.draft!r} has {config.vocab_size} tokens, the "
                f"target only {target.vocab_size}; {remedy}"
            )
        check_vocabulary(self.name, options.draft, config.vocabulary, target, remedy)
        return DraftTarget(self._model, target.backend, parts.options, options.depth)

    def guesses(self, view: SequenceView, depth: int) -> Generator[DraftGuess, None, None]:
        """Greedy."""
        return self.drafter.draft(view.key, view.tokens, depth)
