"""What plain decoding says: the next token, its logits, the state and the features of any text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specla.core.sampling import Sampler
from specla.fuzz.interrupts import uninterrupted
from specla.fuzz.plain import PlainDecoder, Record
from specla.models.qwen35.target import Qwen35Target


class Oracle:
    """Plain decoding on a target of its own, with memory.

    A choice is made from the full row of logits by ``Sampler.choose``, never from a few highest
    ones.
    """

    def __init__(self, target: Qwen35Target) -> None:
        self.vocab_size = target.config.vocab_size
        self._plain = PlainDecoder(target)

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """float32 [vocab] after ``tokens``, of which there is one at least."""
        row = self._after(tokens).logits
        assert row is not None
        return row

    def features(self, tokens: Sequence[int]) -> np.ndarray | None:
        """[len(tokens), layers, d_model], None where none are captured."""
        return self._after(tokens).features

    def arrays(self, tokens: Sequence[int]) -> dict[str, np.ndarray]:
        """The committed state after ``tokens``."""
        return self._after(tokens).arrays

    def choice(self, tokens: Sequence[int], sampler: Sampler) -> int:
        """The token that follows ``tokens``."""
        return sampler.choose(self.logits(tokens), tokens, len(tokens))

    def future(self, tokens: Sequence[int], sampler: Sampler, count: int) -> list[int]:
        """The next ``count`` tokens."""
        text = list(tokens)
        for _ in range(count):
            text.append(self.choice(text, sampler))
        return text[len(tokens) :]

    def trim(self, most: int) -> None:
        """Forget everything where more than ``most`` texts are remembered."""
        self._plain.trim(most)

    def _after(self, tokens: Sequence[int]) -> Record:
        # how much there is to do depends on the past
        with uninterrupted():
            return self._plain.after(tuple(tokens))
