"""What may act on a row of logits before a token is chosen: penalties, bias, and users' own.

A processor must be a pure function of its arguments. Speculation asks for the choice at every
position it walks over, and a stop rule may drop the last of them: a processor that counts its calls
would see calls that plain decoding doesn't make.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from specla.core.sampling.params import SamplingParams
from specla.core.sampling.ranking import Float32, Int64
from specla.errors import OptionError, SpeclaError


class LogitProcessor(Protocol):
    """Changes a row of logits, given the tokens before it.

    history: prompt and emitted tokens, oldest first, those accepted on the walk included; don't
    change it.  logits: float32 [vocab].  Returns float32 [vocab]: a new array, or the one given.
    A user's processor gets a private row and may write to it. -inf forbids a token.
    """

    def __call__(self, history: Sequence[int], logits: Float32, /) -> Float32: ...


def count_tokens(history: Sequence[int], window: int, vocab_size: int) -> tuple[Int64, Int64]:
    """Distinct tokens among the last ``window`` (0: all) of ``history``, ascending, and counts.

    Raises SpeclaError for a token outside the vocabulary.
    """
    recent = np.asarray(history[-window:] if window else history, dtype=np.int64)
    if not recent.size:
        return recent, recent
    for token in (int(recent.min()), int(recent.max())):
        if not 0 <= token < vocab_size:
            raise SpeclaError(
                f"the history holds token {token}; the logits cover tokens 0..{vocab_size - 1}"
            )
    counts = np.bincount(recent).astype(np.int64)
    tokens = np.flatnonzero(counts).astype(np.int64)
    return tokens, counts[tokens]


@dataclass(frozen=True)
class RepetitionPenalty:
    """Seen tokens: logit / penalty if the logit is positive, logit * penalty otherwise."""

    penalty: float
    window: int = 0

    def __call__(self, history: Sequence[int], logits: Float32, /) -> Float32:
        tokens, _ = count_tokens(history, self.window, logits.size)
        penalty = np.float32(self.penalty)
        seen = logits[tokens]
        changed = logits.copy()
        with np.errstate(over="ignore"):
            changed[tokens] = np.where(seen > 0, seen / penalty, seen * penalty)
        return changed


@dataclass(frozen=True)
class FrequencyPresencePenalty:
    """Seen tokens: logit - (count * frequency + presence), in float32."""

    frequency: float
    presence: float
    window: int = 0

    def __call__(self, history: Sequence[int], logits: Float32, /) -> Float32:
        tokens, counts = count_tokens(history, self.window, logits.size)
        penalty = counts.astype(np.float32) * np.float32(self.frequency)
        changed = logits.copy()
        with np.errstate(over="ignore"):
            changed[tokens] = logits[tokens] - (penalty + np.float32(self.presence))
        return changed


@dataclass(frozen=True)
class LogitBias:
    """logit + bias for the given (token, bias) pairs, sorted by token."""

    pairs: tuple[tuple[int, float], ...]

    def __call__(self, history: Sequence[int], logits: Float32, /) -> Float32:
        tokens = np.array([token for token, _ in self.pairs], dtype=np.int64)
        if tokens.size and int(tokens.max()) >= logits.size:
            raise OptionError(
                f"logit_bias names token {int(tokens.max())}; "
                f"the model has tokens 0..{logits.size - 1}"
            )
        changed = logits.copy()
        with np.errstate(over="ignore"):
            changed[tokens] += np.array([bias for _, bias in self.pairs], dtype=np.float32)
        return changed


def built_in(params: SamplingParams) -> tuple[LogitProcessor, ...]:
    """The processors that ``params`` asks for, in the order in which they act."""
    chain: list[LogitProcessor] = []
    window = params.penalty_window
    if params.repetition_penalty != 1.0:
        chain.append(RepetitionPenalty(params.repetition_penalty, window))
    if params.frequency_penalty != 0.0 or params.presence_penalty != 0.0:
        chain.append(
            FrequencyPresencePenalty(params.frequency_penalty, params.presence_penalty, window)
        )
    if params.logit_bias:
        chain.append(LogitBias(tuple(dict(params.logit_bias).items())))
    return tuple(chain)
