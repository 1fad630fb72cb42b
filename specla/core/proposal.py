"""What an adapter says (a proposal), what it sees (a view) and what it is told (an outcome)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, overload

from specla.core.topology import Tree, as_integers
from specla.errors import ProposalError, TopologyError

_LONGEST_REASON = 300


@dataclass(frozen=True)
class Proposal:
    """Candidate tokens after the root of one sequence.

    tokens: token ids.  parents: for each candidate the index of its parent among the candidates,
    -1 for the root; parents come before children; siblings are distinct; the order carries no
    meaning for the result.  log_probs: the draft's log-probability of each candidate given its
    path, or None where it has none.  Empty means: decode plainly this round.
    """

    tokens: Sequence[int] = ()
    parents: Sequence[int] = ()
    log_probs: Sequence[float] | None = None

    @staticmethod
    def chain(tokens: Sequence[int], log_probs: Sequence[float] | None = None) -> Proposal:
        """A proposal without branches."""
        return Proposal(tokens, range(-1, len(tokens) - 1), log_probs)


class ReadOnly(Sequence[int]):
    """A list that can be looked at but not changed, without copying it."""

    __slots__ = ("_items",)

    def __init__(self, items: list[int]) -> None:
        self._items = items

    @overload
    def __getitem__(self, index: int) -> int: ...

    @overload
    def __getitem__(self, index: slice) -> list[int]: ...

    def __getitem__(self, index: int | slice) -> int | list[int]:
        return self._items[index]

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True)
class SequenceView:
    """One sequence as an adapter sees it.

    key: identity of the sequence from open to close; under one key the text only grows.
    tokens: prompt and text so far; the last one is the root, which is decided but not in the
    target's state.  prompt_length: how many are prompt.
    budget: most candidates of this round.  max_depth: candidates deeper than this can't be used.
    greedy: whether the target takes its likeliest token, so that a draft had better be bold.
    features: (start, stop) -> hidden states [stop - start, layers, d_model] of positions in the
    state, for adapters that declared layers; raises for others.
    """

    key: int
    tokens: Sequence[int]
    prompt_length: int
    budget: int
    max_depth: int
    features: Callable[[int, int], Any] = field(repr=False)
    greedy: bool = False

    @property
    def root(self) -> int:
        """The last decided token."""
        return self.tokens[-1]


@dataclass(frozen=True)
class Outcome:
    """What became of a proposal.

    accepted: indices of the accepted candidates, in path order (numbered as in the proposal).
    bonus: the target's own choice after them, the next root.
    refused: why the proposal was not verified at all, or None.
    rows: nodes that were verified, root included.  seconds: what verify, choice and commit took.
    """

    accepted: tuple[int, ...]
    bonus: int
    refused: str | None = None
    rows: int = 0
    seconds: float = field(default=0.0, compare=False)


def to_tree(proposal: Proposal, view: SequenceView, *, vocab_size: int, adapter: str) -> Tree:
    """Root plus candidates as a validated tree: candidate ``i`` is node ``i + 1``.

    Raises ProposalError naming the adapter and what is wrong.
    """
    try:
        # one more than allowed is enough to see that there are too many: it may never end
        tokens = as_integers(islice(proposal.tokens, view.budget + 1), "tokens")
        parents = as_integers(islice(proposal.parents, view.budget + 1), "parents")
        if len(tokens) > view.budget:
            raise TopologyError(f"more than {view.budget} candidates, which is the budget")
        for i, parent in enumerate(parents):
            if not -1 <= parent < i:
                raise TopologyError(
                    f"parents[{i}] is {parent}; it must be -1 (the root) or an earlier candidate"
                )
        _check_log_probs(proposal.log_probs, len(tokens))
        up = (-1, *(parent + 1 for parent in parents))
        return Tree.build((view.root, *tokens), up, vocab_size=vocab_size)
    except Exception as error:
        reason = _reason(error)
        raise ProposalError(f"adapter {adapter!r} proposed a bad tree: {reason}") from error


def _reason(error: Exception) -> str:
    """One line; with its type where the adapter's own sequences or numbers have raised it."""
    ours = isinstance(error, (TopologyError, TypeError, ValueError, AttributeError))
    kind = "" if ours else f"{type(error).__name__}: "
    try:
        return kind + " ".join(str(error)[:_LONGEST_REASON].split())
    except Exception:
        return f"{kind}(its message can't be shown)"


def _check_log_probs(log_probs: Sequence[float] | None, count: int) -> None:
    if log_probs is None:
        return
    if len(log_probs) != count:
        raise TopologyError(f"{len(log_probs)} log_probs for {count} candidates; give one for each")
    # islice: its length is its own claim, and it may never end
    for i, value in enumerate(islice(log_probs, count)):
        number = float(value)
        # a softmax in float32 may exceed 0 by a rounding error
        if math.isnan(number) or number > 1e-3:
            raise TopologyError(f"log_probs[{i}] is {value}; a log-probability is at most 0")
