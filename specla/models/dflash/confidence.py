"""DSpark's confidence head: how likely the target is to accept a drafted token."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.models.dflash.block import BlockDraft
from specla.models.dflash.markov import Table
from specla.models.dflash.weights import ConfidenceWeights, MarkovWeights

Float32 = npt.NDArray[np.float32]


class DsparkConfidence:
    """Implements ConfidenceHead (block.py): sigmoid(w . [hidden ; W1[token before]] + b)."""

    def __init__(
        self, backend: Backend, weights: ConfidenceWeights, markov: MarkovWeights | None
    ) -> None:
        self._backend, self._weights = backend, weights
        self._before = Table(markov.before) if markov is not None else None
        self._draft: BlockDraft | None = None
        self._of_rows = np.empty(0)

    def score(self, draft: BlockDraft, rows: Sequence[int], before: Sequence[int]) -> Float32:
        """float32 [M] from 0 to 1 for rows and the tokens before them."""
        if draft is not self._draft:
            hidden = self._backend.download(draft.hidden)
            self._of_rows = hidden.astype(np.float64) @ self._weights.hidden + self._weights.bias
            self._draft = draft
        x = self._of_rows[np.asarray(rows, dtype=np.int64)]
        if self._weights.before is not None and self._before is not None:
            one = self._before.rows(np.asarray(before, dtype=np.int64))
            x = x + one.astype(np.float64) @ self._weights.before
        with np.errstate(all="ignore"):
            return np.asarray(1.0 / (1.0 + np.exp(-x)), dtype=np.float32)
