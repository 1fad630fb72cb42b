"""Plain decoding as an oracle: one sequence, one token at a time, never a tree.

To save time, what a token list leads to is remembered, and a longer list goes on from its own
prefix: the arrays are copied by hand, without fork, snapshot or restore.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from specla.fuzz.demand import demand
from specla.models.qwen35.target import Qwen35Target, Verified
from specla.testing.arrays import difference_of

REMEMBERED = {"tiny": 3000, "bundled": 300}
"""Token lists that an oracle remembers from one example to the next, by model."""


@dataclass(frozen=True)
class Record:
    """What plain decoding has after a list of tokens. logits: None for the empty list."""

    arrays: dict[str, np.ndarray]
    logits: np.ndarray | None
    features: np.ndarray | None

    @property
    def is_finite(self) -> bool:
        """Whether there is no NaN and no infinity in it."""
        each = [*self.arrays.values(), self.logits, self.features]
        return all(np.isfinite(array).all() for array in each if array is not None)


class PlainDecoder:
    """Wraps a target of its own (one slot)."""

    def __init__(self, target: Qwen35Target) -> None:
        self.target = target
        self.sequence = target.open()
        self._known: dict[tuple[int, ...], Record] = {(): self._record(None)}
        self._at: tuple[int, ...] = ()

    def after(self, tokens: tuple[int, ...]) -> Record:
        """State arrays and logits after plain decoding of ``tokens``."""
        known = len(tokens)
        while tokens[:known] not in self._known:
            known -= 1
        for n in range(known, len(tokens)):
            self._load(tokens[:n])
            result = self.target.prefill([(self.sequence, tokens[n : n + 1])], logits=True)
            self._at = tokens[: n + 1]
            self._known[self._at] = self._record(self.target.logits(cast(Verified, result), 0))
        return self._known[tokens]

    def forget(self, keep: list[tuple[int, ...]]) -> None:
        """Drop all records but those of ``keep``."""
        wanted = {(), *keep}
        self._known = {k: v for k, v in self._known.items() if k in wanted}

    def trim(self, most: int) -> None:
        """Drop all records where there are more than ``most``."""
        if len(self._known) > most:
            self.forget([])

    def _record(self, logits: np.ndarray | None) -> Record:
        features = None
        if self.target.options.features:
            length = self.sequence.length
            features = np.array(self.target.features(self.sequence, 0, length))
        arrays = self.target.state_arrays(self.sequence)
        # an oracle's NaN would agree with every NaN
        record = Record(arrays, logits, features)
        demand(record.is_finite, "plain decoding itself gives NaN or infinity")
        return record

    def _load(self, tokens: tuple[int, ...]) -> None:
        if self._at == tokens:
            return
        arrays, pool, kv = self._known[tokens].arrays, *_pools(self.target)
        pool.state[self.sequence.slot] = arrays["state"]
        pool.window[self.sequence.slot] = arrays["window"]
        for name, cache in (("key", kv.key), ("value", kv.value)):
            for start in range(0, len(tokens), 64):
                page = self.sequence.pages[start // 64]
                rows = arrays[name][:, start : start + 64]
                cache[:, page, : rows.shape[1]] = rows
        features = self._known[tokens].features
        if features is not None and self.target.store.features is not None:
            self.target.store.features.rows[self.sequence.slot, : len(tokens)] = features
        self.sequence.ledger.length = len(tokens)
        self._at = tokens


def _pools(target: Qwen35Target) -> tuple[Any, Any]:
    return target.store.recurrent, target.store.kv


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    """Equality of dtype, shape and bytes."""
    return (
        found.dtype == wanted.dtype
        and found.shape == wanted.shape
        and found.tobytes() == wanted.tobytes()
    )


def difference(found: dict[str, np.ndarray], wanted: dict[str, np.ndarray]) -> str:
    """Which arrays differ, and where; empty when all bytes agree."""
    bad = []
    for name, array in wanted.items():
        if not same(found[name], array):
            bad.append(f"{name} {difference_of(found[name], array)}")
    return ", ".join(bad)
