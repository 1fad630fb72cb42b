"""Proof for one run: decode again without speculation and compare every byte.

The plain run is as plain as can be: a fresh sequence, one token per forward pass, the prefill
kernels (no trees, no factor banks, no commit), and the full row of logits for every choice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.core.sampling import Sampler
from specla.errors import SpeclaError
from specla.models.qwen35.target import Qwen35Target

Float32 = npt.NDArray[np.float32]


class MismatchError(SpeclaError):
    """Speculative and plain decoding differ: a defect of specla or of a backend."""


def canonical_bytes(array: npt.NDArray[Any]) -> bytes:
    """The bytes of an array; NaN payloads, which are not portable, are unified."""
    return np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes()


def logits_digest(row: Float32) -> bytes:
    """16 bytes that stand for a row's bytes."""
    return blake2b(canonical_bytes(row), digest_size=16).digest()


@dataclass
class Trace:
    """What a run decided and on which grounds. digests: logits by position."""

    tokens: list[int] = field(default_factory=list)
    digests: dict[int, bytes] = field(default_factory=dict)

    def on_logits(self, position: int, row: Float32) -> None:
        """For ``Request.on_logits``."""
        self.digests[position] = logits_digest(row)


def plain_decode(
    target: Qwen35Target, prompt: Sequence[int], count: int, sampler: Sampler
) -> tuple[Trace, dict[str, npt.NDArray[Any]]]:
    """``count`` tokens after the prompt, one forward pass each, and the state after them.

    As after any stop, the state holds all tokens but the newest.
    """
    sequence = target.open()
    try:
        trace, tokens = Trace(), [int(token) for token in prompt]
        for token in tokens[:-1]:
            target.prefill([(sequence, [token])])
        for _ in range(count):
            verified = target.prefill([(sequence, [tokens[-1]])], logits=True)
            if verified is None:
                raise SpeclaError("prefill returned no logits")
            row = target.logits(verified, 0)
            position = len(tokens)
            trace.on_logits(position, row)
            tokens.append(sampler.choose(row, tokens, position))
        trace.tokens = tokens[len(prompt) :]
        return trace, target.state_arrays(sequence)
    finally:
        target.close(sequence)


def compare(
    speculative: Trace,
    plain: Trace,
    speculative_state: dict[str, npt.NDArray[Any]],
    plain_state: dict[str, npt.NDArray[Any]],
    prompt_length: int,
) -> int:
    """Compare tokens, logits and state byte by byte; return the number of positions compared.

    Raises MismatchError naming the first position, or the state array, that differs.
    """
    shorter = min(len(speculative.tokens), len(plain.tokens))
    positions = range(prompt_length, prompt_length + shorter)
    for position, ours, theirs in zip(positions, speculative.tokens, plain.tokens, strict=False):
        if speculative.digests.get(position) != plain.digests[position]:
            raise MismatchError(f"logits differ at position {position}")
        if ours != theirs:
            raise MismatchError(
                f"tokens differ at position {position}: {ours} with speculation, {theirs} without"
            )
    if len(speculative.tokens) != len(plain.tokens):
        raise MismatchError(
            f"{len(speculative.tokens)} tokens with speculation, {len(plain.tokens)} without: "
            f"one ends at position {prompt_length + shorter}"
        )
    for name, array in plain_state.items():
        if canonical_bytes(speculative_state[name]) != canonical_bytes(array):
            raise MismatchError(f"the committed state differs: {name}")
    return len(positions)
