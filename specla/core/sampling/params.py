"""The sampling setting of one request: validated once, immutable, hashable."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real

from specla.errors import OptionError

TINY, HUGE = 1e-6, 1e6
"""Bounds of temperature and repetition penalty: inside them float32 neither dies nor overflows."""

MAX_PENALTY = 100.0
MAX_BIAS = 1e9
MAX_COUNT = 2**31 - 1
MAX_SEED = 2**64 - 1


def _real(name: str, value: object, low: float, high: float, remedy: str) -> float:
    """``value`` as a float in low..high, or an OptionError. Refuses bool, NaN and infinities."""
    if not isinstance(value, bool) and isinstance(value, Real):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        # a NaN fails every comparison
        if low <= number <= high:
            return number
    raise OptionError(f"{name} is {value!r}; {remedy}")


def _integer(name: str, value: object, high: int, remedy: str) -> int:
    """``value`` as an int in 0..high, or an OptionError. Refuses bool and floats."""
    if not isinstance(value, bool) and isinstance(value, Integral) and 0 <= int(value) <= high:
        return int(value)
    raise OptionError(f"{name} is {value!r}; {remedy}")


def _temperature(value: object) -> float:
    remedy = f"give 0 (greedy) or a number from {TINY:g} to {HUGE:g}"
    number = _real("temperature", value, 0.0, HUGE, remedy)
    if 0 < number < TINY:
        raise OptionError(f"temperature is {value!r}; {remedy}")
    return number


def _bias(value: object) -> tuple[tuple[int, float], ...]:
    """(token, bias) pairs in ascending token order, from a mapping or from pairs."""
    if isinstance(value, Mapping):
        value = value.items()
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes)):
        raise OptionError(f"logit_bias is {value!r}; give a mapping of token id to number")
    result: dict[int, float] = {}
    for entry in value:
        if not isinstance(entry, (tuple, list)) or len(entry) != 2:
            raise OptionError(f"logit_bias holds {entry!r}; give pairs of token id and number")
        token = _integer(
            "logit_bias token", entry[0], MAX_COUNT, f"give a token id from 0 to {MAX_COUNT}"
        )
        if token in result:
            raise OptionError(f"logit_bias names token {token} twice; give each token once")
        result[token] = _real(
            f"logit_bias of token {token}",
            entry[1],
            -MAX_BIAS,
            MAX_BIAS,
            f"give a number from {-MAX_BIAS:g} to {MAX_BIAS:g}",
        )
    return tuple(sorted(result.items()))


@dataclass(frozen=True)
class SamplingParams:
    """How a token is chosen from logits. Every default means "off"; all off is greedy decoding.

    temperature: 0 is greedy; otherwise logits are divided by it.
    top_k: keep the k highest logits; 0 is off.
    top_p: keep the smallest set of most likely tokens whose probability reaches it; 1 is off.
    min_p: keep tokens at least this fraction as likely as the most likely one; 0 is off.
    seed: key of the random numbers, 64 bits. Same seed, same text.
    repetition_penalty: seen tokens' positive logits are divided by it, others multiplied; 1 is off.
    frequency_penalty: subtracted once per occurrence; presence_penalty: once per seen token.
    penalty_window: the penalties look at this many last tokens, prompt included; 0 is all of them.
    logit_bias: added to the logits of given tokens; stored as pairs sorted by token.

    Raises OptionError (one line: option, value, allowed range) for anything out of range; NaN,
    infinities and bools are out of every range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int = 0
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_window: int = 0
    logit_bias: Mapping[int, float] | tuple[tuple[int, float], ...] = ()

    def __post_init__(self) -> None:
        def settle(name: str, value: object) -> None:
            # the dataclass is frozen for everybody else
            object.__setattr__(self, name, value)

        count = f"give a whole number from 0 (off) to {MAX_COUNT}"
        window = f"give a whole number from 0 (whole history) to {MAX_COUNT}"
        settle("temperature", _temperature(self.temperature))
        settle("top_k", _integer("top_k", self.top_k, MAX_COUNT, count))
        for name, off in (("top_p", 1), ("min_p", 0)):
            remedy = f"give a number from 0 to 1 ({off} is off)"
            settle(name, _real(name, getattr(self, name), 0.0, 1.0, remedy))
        seed = f"give a whole number from 0 to {MAX_SEED}"
        settle("seed", _integer("seed", self.seed, MAX_SEED, seed))
        ratio = f"give a number from {TINY:g} to {HUGE:g} (1 is off)"
        settle(
            "repetition_penalty",
            _real("repetition_penalty", self.repetition_penalty, TINY, HUGE, ratio),
        )
        for name in ("frequency_penalty", "presence_penalty"):
            remedy = f"give a number from {-MAX_PENALTY:g} to {MAX_PENALTY:g} (0 is off)"
            settle(name, _real(name, getattr(self, name), -MAX_PENALTY, MAX_PENALTY, remedy))
        settle("penalty_window", _integer("penalty_window", self.penalty_window, MAX_COUNT, window))
        settle("logit_bias", _bias(self.logit_bias))

    @property
    def is_greedy(self) -> bool:
        """The highest logit wins; no random number is drawn."""
        return self.temperature == 0.0

    @property
    def changes_logits(self) -> bool:
        """A penalty or bias acts before anything is ranked."""
        return (
            self.repetition_penalty != 1.0
            or self.frequency_penalty != 0.0
            or self.presence_penalty != 0.0
            or bool(self.logit_bias)
        )

    @property
    def needs_full_logits(self) -> bool:
        """The whole row must reach the host: the few highest logits don't decide.

        True with a penalty or bias, and when sampling without top_k. User processors need the full
        row as well; they are no part of this setting, see :attr:`Sampler.needs_full_logits`.
        """
        return self.changes_logits or (not self.is_greedy and self.top_k == 0)
