"""A block drafter made of tables, with whatever heads a test wants."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from specla.core.proposal import SequenceView
from specla.models.dflash.block import BlockDraft


@dataclass
class FakeMarkov:
    """table float32 [vocab, vocab]: what a token before (row) adds to the logits."""

    table: np.ndarray

    def corrected(self, draft: BlockDraft, row: int, before: int) -> np.ndarray:
        return np.asarray(draft.logits[row] + self.table[before], np.float32)

    def biases(self, ids: np.ndarray) -> Callable[[int, int], np.ndarray]:
        assert isinstance(ids, np.ndarray) and ids.dtype == np.int32 and ids.ndim == 2
        return lambda row, before: np.asarray(self.table[before, ids[row]], np.float32)


@dataclass
class FakeConfidence:
    """table float32 [rows, vocab]: confidence of a row after a token."""

    table: np.ndarray

    def score(self, draft: BlockDraft, rows: Sequence[int], before: Sequence[int]) -> np.ndarray:
        return np.asarray(self.table[list(rows), list(before)], np.float32)


@dataclass
class FakeSelector:
    """table float32 [vocab, vocab]: adds to the logits; a softmax over the best ``top_k``."""

    table: np.ndarray
    top_k: int

    def scores(self, draft: BlockDraft, row: int, before: Sequence[int]) -> np.ndarray:
        ids = draft.ids[row, : self.top_k]
        raw = draft.values[row, : self.top_k] + self.table[np.ix_(before, ids)]
        return np.asarray(raw - np.log(np.exp(raw).sum(1, keepdims=True)), np.float32)


@dataclass
class FakeDrafter:
    """logits float32 [rows, vocab]. A prefix shifts a row's logits by its tokens' sum, cyclically.

    As with a real one, a draft is overwritten by the next call.
    """

    logits: np.ndarray
    markov: FakeMarkov | None = None
    confidence: FakeConfidence | None = None
    selector: FakeSelector | None = None
    asked: list[tuple[int, int, int]] = field(default_factory=list)
    prefixes: list[tuple[int, ...]] = field(default_factory=list)
    closed: list[int] = field(default_factory=list)
    _last: BlockDraft | None = None

    @property
    def depth(self) -> int:
        return len(self.logits)

    def serves(self, target: object) -> bool:
        return True

    def prepare(self, k: int) -> None:
        pass

    def take_up(self, view: SequenceView) -> None:
        pass

    def draft(self, view: SequenceView, depth: int, k: int) -> BlockDraft:
        self.asked.append((view.key, depth, k))
        return self._block(view.root, (), depth, k)

    def redraft(self, view: SequenceView, prefix: Sequence[int], k: int) -> BlockDraft:
        self.prefixes.append(tuple(prefix))
        return self._block(view.root, tuple(prefix), self.depth, k)

    def close(self, key: int) -> None:
        self.closed.append(key)

    def row(self, depth: int, prefix: Sequence[int] = ()) -> np.ndarray:
        """The logits of a row in the block with these tokens after the root."""
        return np.roll(self.logits[depth], sum(prefix[:depth]))

    def _block(self, root: int, prefix: tuple[int, ...], depth: int, k: int) -> BlockDraft:
        if self._last is not None:
            for array in (self._last.ids, self._last.values, self._last.logits):
                array[:] = 99
        logits = np.stack([self.row(d, prefix) for d in range(depth)])
        ids = np.argsort(-logits, axis=1, kind="stable")[:, :k].astype(np.int32)
        values = np.take_along_axis(logits, ids, axis=1)
        total = np.log(np.exp(logits.astype(np.float64)).sum(axis=1))
        self._last = BlockDraft(root, ids, values, total, np.zeros((depth, 1)), logits)
        return self._last


def random_drafter(
    seed: int, *, rows: int = 3, vocab: int = 6, spread: float = 2.0, heads: bool = True
) -> FakeDrafter:
    """Random logits and, if wanted, a random Markov head and confidences."""
    random = np.random.default_rng(seed)
    logits = (random.normal(size=(rows, vocab)) * spread).astype(np.float32)
    if not heads:
        return FakeDrafter(logits)
    table = (random.normal(size=(vocab, vocab)) * spread).astype(np.float32)
    confidence = random.uniform(size=(rows, vocab)).astype(np.float32)
    return FakeDrafter(logits, FakeMarkov(table), FakeConfidence(confidence))


def log_softmax(logits: np.ndarray) -> np.ndarray:
    wide = np.asarray(logits, np.float64)
    return wide - np.log(np.exp(wide).sum(axis=-1, keepdims=True))
