"""A text in a target, shown to an adapter round by round, without an engine."""

from __future__ import annotations

from collections.abc import Sequence

from specla.core.proposal import SequenceView
from specla.models.qwen35.target import Qwen35Target


class Text:
    """tokens: decided ones; all but the last are in the target's state when it is looked at."""

    def __init__(self, target: Qwen35Target, tokens: Sequence[int], key: int = 0) -> None:
        self.target, self.tokens, self.key = target, list(tokens), key
        self.sequence = target.open()

    def view(self, budget: int = 64, max_depth: int = 64) -> SequenceView:
        """As the engine would show it."""
        target, sequence, stop = self.target, self.sequence, len(self.tokens) - 1
        while sequence.length < stop:
            piece = self.tokens[sequence.length : stop][: target.options.chunk]
            target.prefill([(sequence, piece)])
        return SequenceView(
            self.key,
            list(self.tokens),
            1,
            budget,
            max_depth,
            lambda start, stop: target.features(sequence, start, stop),
        )

    def close(self) -> None:
        self.target.close(self.sequence)
