"""Plain decoding beside a soak: a digest of all state after every token.

One token per forward pass through the prefill kernels, on a target of its own; no tree, no bank,
no commit. It runs as far as somebody asks for, so it is the truth that candidates are made from as
well as what every round is compared with.
"""

from __future__ import annotations

from collections.abc import Sequence as Seq
from hashlib import sha256
from secrets import token_bytes

import numpy as np

from specla.check import logits_digest
from specla.core.sampling import Sampler
from specla.models.qwen35.target import Qwen35Target
from specla.models.sequence import Sequence

Digests = dict[str, bytes]


def state_digests(target: Qwen35Target, sequence: Sequence) -> Digests:
    """A digest for each array of a sequence's state: recurrent state, convolution windows, all KV
    rows, all captured features. Flushes the sequence."""
    arrays = target.state_arrays(sequence)
    if target.options.features:
        rows = target.features(sequence, 0, sequence.length)
        arrays["features"] = target.backend.download(rows)
    return {name: _digest(array) for name, array in arrays.items()}


def _digest(array: np.ndarray) -> bytes:
    if not np.isfinite(array).all():
        # equal to nothing, as a NaN is: a fault of both sides must not agree with itself
        return b"not finite, " + token_bytes(16)
    return sha256(np.ascontiguousarray(array)).digest()


class PlainText:
    """One text, decoded plainly. target: with a slot that is free.

    tokens: prompt and text as far as it was decoded; the state holds all but the last one.
    """

    def __init__(self, target: Qwen35Target, prompt: Seq[int], sampler: Sampler) -> None:
        self._target, self._sampler = target, sampler
        self._sequence = target.open()
        self._begin(prompt)

    def _begin(self, tokens: Seq[int]) -> None:
        self.tokens = list(tokens)
        self._logits: dict[int, bytes] = {}
        for token in self.tokens[:-1]:
            self._target.prefill([(self._sequence, [token])])
        self._states = {self._sequence.length: state_digests(self._target, self._sequence)}

    def token(self, position: int) -> int:
        """The token at ``position`` of prompt and text."""
        while len(self.tokens) <= position:
            self._step()
        return self.tokens[position]

    def logits(self, position: int) -> bytes:
        """Digest of the logits that the token at ``position`` was chosen from."""
        self.token(position)
        return self._logits[position]

    def state(self, length: int) -> Digests:
        """Digests of the state that holds the first ``length`` tokens."""
        self.token(length)
        return self._states[length]

    def follow(self, tokens: Seq[int]) -> None:
        """Go on after ``tokens``, even if the last one is not what was decoded here."""
        last = len(tokens) - 1
        if self._sequence.length == last and self.tokens[:last] == list(tokens[:last]):
            self.tokens[last:] = [tokens[last]]
        elif self.tokens[: len(tokens)] != list(tokens):
            self.close()
            self._sequence = self._target.open()
            self._begin(tokens)

    def differing(self, reference: Qwen35Target) -> list[str]:
        """What a prefill of the same tokens on another target has otherwise: logits of positions
        that were decoded here, and the state at the end. In pieces of the other's ``chunk``."""
        names, length = [], len(self.tokens) - 1
        sequence, chunk = reference.open(), reference.options.chunk
        try:
            for start in range(0, length, chunk):
                piece = self.tokens[start : min(start + chunk, length)]
                verified = reference.prefill([(sequence, piece)], logits=True)
                assert verified is not None
                for row, position in enumerate(range(start + 1, start + 1 + len(piece))):
                    # the logits of the prompt's own tokens were never asked for
                    wanted = self._logits.get(position)
                    if wanted not in (None, logits_digest(reference.logits(verified, row))):
                        names.append(f"logits at position {position}")
            found = state_digests(reference, sequence)
        finally:
            reference.close(sequence)
        return names + [n for n, digest in self.state(length).items() if found[n] != digest]

    def close(self) -> None:
        """Give the slot back."""
        self._target.close(self._sequence)

    def _step(self) -> None:
        position = len(self.tokens)
        verified = self._target.prefill([(self._sequence, self.tokens[-1:])], logits=True)
        assert verified is not None
        row = self._target.logits(verified, 0)
        self._logits[position] = logits_digest(row)
        self._states[position] = state_digests(self._target, self._sequence)
        self.tokens.append(self._sampler.choose(row, self.tokens, position))
