"""What a block drafter gives to whoever builds chains and trees from it.

One pass of a DFlash model drafts a block: row d of it predicts the token at depth d + 1 below the
root, for all depths at once and without knowing the tokens in between. The heads correct that:
they look at the token before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from specla.core.proposal import SequenceView

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class BlockDraft:
    """One drafted block, D rows. Valid until the drafter's next call.

    ids int32 [D, k], values float32 [D, k]: the k best logits of each row and their tokens (target
    ids), descending, ties by ascending id.  log_total float64 [D]: ln of the sum of exp(logit) over
    the whole row, so ``values - log_total[:, None]`` are log-probabilities.
    hidden: backend array [D, d_model], after the final norm.  logits: backend array [D, vocab].
    """

    root: int
    ids: Int32
    values: Float32
    log_total: Float64
    hidden: Any
    logits: Any

    @property
    def depth(self) -> int:
        """Rows: the deepest candidate that can be drafted."""
        return len(self.ids)


class MarkovHead(Protocol):
    """DSpark's low-rank correction: logits of a row += W2 W1[token before]."""

    def corrected(self, draft: BlockDraft, row: int, before: int) -> Float32:
        """All logits of one row, float32 [vocab] on the host by target id (-inf for ids outside a
        reduced draft vocabulary), given the token before it."""
        ...

    def biases(self, ids: Int32) -> Callable[[int, int], Float32]:
        """For target ids [D, C], a function of a row 0 .. D - 1 and the token before it: what that
        token adds to the logits of ``ids[row]``, float32 [C]."""
        ...


class ConfidenceHead(Protocol):
    """DSpark's estimate that the target accepts a drafted token."""

    def score(self, draft: BlockDraft, rows: Sequence[int], before: Sequence[int]) -> Float32:
        """float32 [M] from 0 to 1 for rows and the tokens before them."""
        ...


class Selector(Protocol):
    """DFlash2's path selector: which of a row's best candidates follows which predecessor."""

    top_k: int

    def scores(self, draft: BlockDraft, row: int, before: Sequence[int]) -> Float32:
        """float32 [M, k]: log-probabilities, over the row's first ``top_k`` candidates
        ``draft.ids[row]``, after each of M tokens before."""
        ...


class BlockDrafter(Protocol):
    """A drafter bound to a target; keeps its context per sequence.

    depth: most rows of a block.  markov, confidence, selector: the heads it has.
    """

    depth: int
    markov: MarkovHead | None
    confidence: ConfidenceHead | None
    selector: Selector | None

    def prepare(self, k: int) -> None:
        """Do ahead what the first drafts of each depth with ``k`` best tokens would do."""
        ...

    def take_up(self, view: SequenceView) -> None:
        """Take up what was committed since the last call: of a long prompt, say."""
        ...

    def draft(self, view: SequenceView, depth: int, k: int) -> BlockDraft:
        """Take up what was committed since the last call, then draft ``depth`` rows."""
        ...

    def redraft(self, view: SequenceView, prefix: Sequence[int], k: int) -> BlockDraft:
        """The last block again with the tokens ``prefix`` after the root in place of masks; row
        ``len(prefix)`` predicts what follows them."""
        ...

    def close(self, key: int) -> None:
        """Drop a sequence's context."""
        ...
