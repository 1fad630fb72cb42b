"""What plain decoding says: the next token, its logits, the state and the features of any text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specla.core.sampling import Sampler
from specla.fuzz.interrupts import uninterrupted
from specla.fuzz.plain import PlainDecoder
from specla.models.qwen35.target import Qwen35Target


class Oracle:
    """Plain decoding on a target of its own, with memory.

    A choice is made from the full row of logits by ``Sampler.choose``, never from a few highest
    ones.  limit: texts that are remembered from one world to the next.
    """

    def __init__(self, target: Qwen35Target, limit: int) -> None:
        self.vocab_size = target.config.vocab_size
        self._plain = PlainDecoder(target)
        self._limit = limit
        self._known: set[tuple[int, ...]] = set()

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """float32 [vocab] after ``tokens``."""
        row: np.ndarray = self._after(tokens).logits
        return row

    def features(self, tokens: Sequence[int]) -> np.ndarray | None:
        """[len(tokens), layers, d_model], None where none are captured."""
        features: np.ndarray | None = self._after(tokens).features
        return features

    def arrays(self, tokens: Sequence[int]) -> dict[str, np.ndarray]:
        """The committed state after ``tokens``."""
        arrays: dict[str, np.ndarray] = self._after(tokens).arrays
        return arrays

    def choice(self, tokens: Sequence[int], sampler: Sampler) -> int:
        """The token that follows ``tokens``."""
        return sampler.choose(self.logits(tokens), tokens, len(tokens))

    def future(self, tokens: Sequence[int], sampler: Sampler, count: int) -> list[int]:
        """The next ``count`` tokens."""
        text = list(tokens)
        for _ in range(count):
            text.append(self.choice(text, sampler))
        return text[len(tokens) :]

    def trim(self) -> None:
        """Forget everything where there is too much of it."""
        if len(self._known) > self._limit:
            self._plain.forget([])
            self._known.clear()

    def _after(self, tokens: Sequence[int]) -> Any:
        key = tuple(tokens)
        length = len(key)
        while length and key[:length] not in self._known:
            self._known.add(key[:length])
            length -= 1
        # how much there is to do depends on the past
        with uninterrupted():
            return self._plain.after(key)
