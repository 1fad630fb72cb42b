"""DSpark's Markov head: logits of a row += W2 W1[token before], a low-rank table of pairs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.backends.blocks import dequantise
from specla.backends.weights import WeightSource
from specla.models.dflash.block import BlockDraft
from specla.models.dflash.weights import MarkovWeights

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]
KEPT = 1 << 24
"""Entries up to which a table is kept as floats; a larger one is decoded as it is read."""
SLAB = 1 << 20


class Table:
    """A matrix of a file, read by rows. On the host: a few rows are all that a round reads."""

    def __init__(self, source: WeightSource) -> None:
        self._source = source
        self._kept: Float32 | None = None
        if source.rows * source.cols <= KEPT:
            self._kept = self._decoded(source.data)

    def _decoded(self, data: npt.NDArray[np.uint8]) -> Float32:
        found: Float32 = dequantise(
            self._source.kind, np.ascontiguousarray(data), self._source.cols
        )
        return found

    def rows(self, ids: npt.NDArray[np.integer]) -> Float32:
        """float32 [n, cols] of n rows."""
        kept = self._kept
        found: Float32 = self._decoded(self._source.data[ids]) if kept is None else kept[ids]
        return found

    def row(self, index: int) -> Float32:
        """float32 [cols]: one row."""
        kept = self._kept
        found: Float32 = self.rows(np.array([index]))[0] if kept is None else kept[index]
        return found

    def times(self, vector: Float32) -> Float32:
        """float32 [rows]: the matrix times a vector [cols]."""
        if self._kept is not None:
            return self._kept @ vector
        run = max(SLAB // self._source.cols, 1)
        starts = range(0, self._source.rows, run)
        return np.concatenate(
            [self._decoded(self._source.data[s : s + run]) @ vector for s in starts]
        )


class DsparkMarkov:
    """Implements MarkovHead (block.py). ids: as in DraftWeights."""

    def __init__(
        self, backend: Backend, weights: MarkovWeights, ids: Int32 | None, vocab_size: int
    ) -> None:
        self._backend = backend
        self._before, self._after = Table(weights.before), Table(weights.after)
        self._ids, self._vocab_size = ids, vocab_size

    def corrected(self, draft: BlockDraft, row: int, before: int) -> Float32:
        """All logits of one row by target id, float32 [vocab], given the token before it."""
        logits = self._backend.download(self._backend.row(draft.logits, row))[0]
        sums = logits + self._after.times(self._before.row(before))
        if self._ids is None:
            return np.asarray(sums, dtype=np.float32)
        every = np.full(self._vocab_size, -np.inf, dtype=np.float32)
        every[self._ids] = sums
        return every

    def biases(self, ids: Int32) -> Callable[[int, int], Float32]:
        """What a token before row 0 .. D - 1 adds to the logits of ``ids[row]``, ids [D, C]."""
        rows = ids if self._ids is None else np.searchsorted(self._ids, ids)
        after = self._after.rows(rows.ravel()).reshape(*ids.shape, -1)

        def bias(row: int, before: int) -> Float32:
            found: Float32 = after[row] @ self._before.row(before)
            return found

        return bias
