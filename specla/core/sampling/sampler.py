"""The sampling chain: one token from one row of logits, a pure function of its arguments.

Order: repetition penalty, frequency and presence penalties, logit bias, the user's processors; then
greedy, or top-k, temperature, softmax, top-p, min-p and the draw. Tokens are ranked before the
division by the temperature: it keeps their order, but its rounding could merge neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from specla.core.sampling import filters
from specla.core.sampling.filters import Float64
from specla.core.sampling.params import SamplingParams
from specla.core.sampling.processors import LogitProcessor, built_in
from specla.core.sampling.random import TARGET_STREAM, uniform
from specla.core.sampling.ranking import Float32, Int64, best, rank
from specla.errors import SpeclaError


def _check_row(logits: Float32, source: str, size: int | None = None) -> None:
    wanted = "[vocab]" if size is None else f"[{size}]"
    if not isinstance(logits, np.ndarray):
        raise SpeclaError(f"{source} is a {type(logits).__name__}; want a float32 array {wanted}")
    bad_size = logits.size == 0 or (size is not None and logits.size != size)
    if logits.dtype != np.float32 or logits.ndim != 1 or bad_size:
        shape = list(logits.shape)
        raise SpeclaError(f"{source} is {logits.dtype} {shape}; want float32 {wanted}")


class Sampler:
    """Chooses tokens under one setting. Holds no state: any call order gives the same tokens.

    processors: the user's own, after the built-in ones, in the given order.
    stream: of the random numbers; a draft must use another stream than the target.
    """

    def __init__(
        self,
        params: SamplingParams,
        processors: Iterable[LogitProcessor] = (),
        *,
        stream: int = TARGET_STREAM,
    ) -> None:
        self.params = params
        self.processors = tuple(processors)
        self.stream = stream
        self._built_in = built_in(params)

    @property
    def needs_full_logits(self) -> bool:
        """Only :meth:`choose` will do: the setting or a user's processor needs the whole row."""
        return self.params.needs_full_logits or bool(self.processors)

    def top_needed(self, vocab_size: int) -> int | None:
        """How many of the highest logits :meth:`choose_from_top` needs; None: the whole row."""
        if self.needs_full_logits:
            return None
        return 1 if self.params.is_greedy else min(self.params.top_k, vocab_size)

    def process(self, logits: Float32, history: Sequence[int]) -> Float32:
        """Logits after penalties, bias and the user's processors: float32 [vocab].

        The given row is never written. Raises SpeclaError if a processor returns anything but a
        float32 row of the same length.
        """
        row = logits
        for processor in self._built_in:
            row = processor(history, row)
        if self.processors and row is logits:
            row = logits.copy()
        for user in self.processors:
            row = user(history, row)
            name = getattr(user, "__name__", type(user).__name__)
            _check_row(row, f"the result of logit processor {name}", logits.size)
        return row

    def choose(self, logits: Float32, history: Sequence[int], position: int) -> int:
        """The token at ``position``.

        logits: float32 [vocab], not written.  history: all tokens before it, prompt first.
        position: index that the chosen token will have in the sequence, prompt included; so it is
        len(history), however the tokens before it were found.
        Raises SpeclaError if no token is possible (all logits are NaN or -inf).
        """
        _check_row(logits, "the row of logits")
        row = self.process(logits, history)
        if self.params.is_greedy:
            token = best(row)
            self._check_possible(row[token], position)
            return token
        values, ids = rank(row, self.params.top_k)
        return self._draw(values, ids, position)

    def candidates(self, logits: Float32, history: Sequence[int]) -> tuple[Int64, Float64]:
        """What :meth:`choose` can choose: token ids int64 [n], most likely first, and float64 [n].

        The second array is proportional to the probabilities (1.0 alone if greedy).
        Arguments and errors as in :meth:`choose`.
        """
        _check_row(logits, "the row of logits")
        row = self.process(logits, history)
        if self.params.is_greedy:
            token = best(row)
            self._check_possible(row[token], len(history))
            return np.array([token], dtype=np.int64), np.ones(1)
        values, ids = rank(row, self.params.top_k)
        self._check_possible(values[0], len(history))
        ids, weight = self._filter(values, ids)
        possible = weight > 0.0
        return ids[possible], weight[possible]

    def choose_from_top(
        self, values: Float32, ids: Int64, position: int, *, vocab_size: int | None = None
    ) -> int:
        """The token that :meth:`choose` would give, from the highest logits only.

        values: float32 [n], the n highest logits of the row; ids: integers [n], their tokens. Ties
        at the cut must have gone to the lowest ids, and NaN counts as -inf; any order will do.
        n >= top_k (n >= 1 if greedy), unless n is the whole vocabulary, given as ``vocab_size``.
        Raises SpeclaError if the setting needs the whole row or n is too small.
        """
        if self.needs_full_logits:
            raise SpeclaError(
                "this sampling setting needs the whole row of logits; call choose() instead"
            )
        _check_row(values, "the list of highest logits")
        if ids.shape != values.shape:
            raise SpeclaError(
                f"{values.size} highest logits but ids of shape {list(ids.shape)}; give one each"
            )
        k = 1 if self.params.is_greedy else self.params.top_k
        if values.size < k and values.size != vocab_size:
            raise SpeclaError(
                f"{values.size} highest logits for a top_k of {k}; give at least {k}, or the "
                "whole row with vocab_size"
            )
        values, ids = rank(values, k, ids.astype(np.int64))
        if self.params.is_greedy:
            self._check_possible(values[0], position)
            return int(ids[0])
        return self._draw(values, ids, position)

    def _check_possible(self, highest: np.float32, position: int) -> None:
        if not highest > -np.inf:
            raise SpeclaError(
                f"no token is possible at position {position}: every logit is NaN or -inf; "
                "check the model file and any logit processor"
            )

    def _filter(self, values: Float32, ids: Int64) -> tuple[Int64, Float64]:
        """Temperature, softmax, top-p and min-p on ranked candidates: the ids and weights left."""
        weight = filters.weights(values, self.params.temperature)
        weight = weight[: filters.top_p_count(weight, self.params.top_p)]
        ids = ids[: weight.size]
        if self.params.min_p > 0.0:
            kept = filters.min_p_kept(weight, self.params.min_p)
            return ids[kept], weight[kept]
        return ids, weight

    def _draw(self, values: Float32, ids: Int64, position: int) -> int:
        """Draw from ranked candidates: values float32 [n], ids int64 [n]."""
        self._check_possible(values[0], position)
        ids, weight = self._filter(values, ids)
        number = uniform(self.params.seed, position, self.stream)
        return int(ids[filters.draw(weight, number)])
