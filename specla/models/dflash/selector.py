"""DFlash2's path selector: which of a row's best candidates follows which token before it.

score(before -> c) = logit(c) + sum over r of P[before]_r * gate_r * S[c]_r, the gate being a
projection of the row's hidden state; a log-softmax over the row's first ``top_k`` candidates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.models.dflash.block import BlockDraft
from specla.models.dflash.markov import Table
from specla.models.dflash.weights import SelectorWeights

Float32 = npt.NDArray[np.float32]


class PathSelector:
    """Implements Selector (block.py). A draft must hold ``top_k`` candidates per row, or fewer are
    ranked."""

    def __init__(self, backend: Backend, weights: SelectorWeights, top_k: int) -> None:
        self.top_k = top_k
        self._backend = backend
        self._before, self._after = Table(weights.before), Table(weights.after)
        self._hidden = Table(weights.hidden)
        self._draft: BlockDraft | None = None
        self._gates = np.empty((0, 0), dtype=np.float32)

    def scores(self, draft: BlockDraft, row: int, before: Sequence[int]) -> Float32:
        """float32 [M, k]: log-probabilities of ``draft.ids[row, :k]`` after each of M tokens."""
        if draft is not self._draft:
            hidden = self._backend.download(draft.hidden)
            self._gates = np.stack([self._hidden.times(x) for x in hidden])
            self._draft = draft
        ids, logits = draft.ids[row, : self.top_k], draft.values[row, : self.top_k]
        gated = self._before.rows(np.asarray(before, dtype=np.int64)) * self._gates[row]
        scores = (logits + gated @ self._after.rows(ids).T).astype(np.float64)
        with np.errstate(all="ignore"):
            scores -= scores.max(axis=1, keepdims=True)
            return np.asarray(
                scores - np.log(np.exp(scores).sum(axis=1, keepdims=True)), dtype=np.float32
            )
