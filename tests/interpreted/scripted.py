"""An adapter that proposes what a test wrote down, and the right and wrong tokens to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from specla.adapters.base import Adapter
from specla.core.proposal import Proposal, SequenceView

Script = Callable[["Truth"], Proposal]


class Truth:
    """What the target will say. tokens: from the next one on."""

    def __init__(self, tokens: Sequence[int], vocab_size: int) -> None:
        self.tokens, self._vocab_size = tokens, vocab_size

    def wrong(self, depth: int) -> int:
        """A token that is not the right one ``depth`` tokens ahead."""
        return (self.tokens[depth] + 1) % self._vocab_size


class Scripted(Adapter):
    """One script for each round, then nothing. truth: all tokens after the prompt."""

    def __init__(self, truth: Sequence[int], vocab_size: int, scripts: Sequence[Script]) -> None:
        super().__init__()
        self._truth, self._vocab_size = truth, vocab_size
        self._scripts = list(scripts)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        if not self._scripts:
            return [Proposal() for _ in views]
        script = self._scripts.pop(0)
        starts = [len(view.tokens) - view.prompt_length for view in views]
        return [script(Truth(self._truth[start:], self._vocab_size)) for start in starts]


def second_sibling(truth: Truth) -> Proposal:
    """Two branches of two tokens: the first is wrong, the second right."""
    right, then = truth.tokens[:2]
    return Proposal([truth.wrong(0), truth.wrong(1), right, then], [-1, 0, -1, 2])


def all_wrong(truth: Truth) -> Proposal:
    """A candidate that is not right."""
    return Proposal.chain([truth.wrong(0)])


def chain_of_one(truth: Truth) -> Proposal:
    """The next token."""
    return Proposal.chain(truth.tokens[:1])
