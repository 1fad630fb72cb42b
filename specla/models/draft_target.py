"""A smaller model of the target's own kind as a draft: whole texts, token by token.

The draft has sequences of its own. One per text holds exactly its decided tokens, the root
included, for they are never taken back. Guesses run on a fork that ends with the round: so nothing
rejected ever reaches a state that lasts, and nothing has to be undone.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from specla.backends.base import Backend
from specla.core.lifecycle import Phase
from specla.errors import CapacityError, SpeclaError
from specla.models.draft_scores import log_probability
from specla.models.load import ModelFile
from specla.models.qwen35.options import TargetOptions
from specla.models.qwen35.target import Verified
from specla.models.sequence import Sequence as State


@dataclass(frozen=True)
class DraftGuess:
    """A drafted token and its log-probability over the draft's vocabulary."""

    token: int
    log_prob: float

    @property
    def confidence(self) -> float:
        """The token's probability."""
        return math.exp(self.log_prob)


@dataclass(eq=False)
class _Text:
    """state: of the decided tokens.  next: what follows them, None if it isn't known."""

    state: State
    next: DraftGuess | None = None


class DraftTarget:
    """A loaded draft model and its texts, as many at once as the target has slots.

    options: the target's.  depth: most tokens of a draft.
    context: most positions; the draft's own limit where that is less than the target's.
    """

    def __init__(
        self, model: ModelFile, backend: Backend, options: TargetOptions, depth: int
    ) -> None:
        self.context = max(min(options.context, model.config.context_length), 2)
        self._texts_limit = options.slots
        # logits of so many rows at once: what a round decides in general
        self._tail = min(depth + 1, options.chunk)
        self.target = model.target(
            backend,
            TargetOptions(
                context=self.context,
                max_nodes=self._tail,
                chunk=options.chunk,
                # texts are drafted one after the other: one fork at a time
                slots=options.slots + 1,
                kv=options.kv,
                poison=options.poison,
            ),
        )
        self._texts: dict[int, _Text] = {}

    def open(self, key: int) -> None:
        """A text begins. Raises CapacityError when as many are open as the target has slots."""
        self.close(key)
        if len(self._texts) >= self._texts_limit:
            raise CapacityError(
                f"{self._texts_limit} sequences are drafted already, as many as the target has "
                f"slots; close one or raise `slots`"
            )
        self._texts[key] = _Text(self.target.open())

    def close(self, key: int) -> None:
        """Drop a text, if it is open."""
        text = self._texts.pop(key, None)
        if text is not None:
            self.target.close(text.state)

    def draft(
        self, key: int, tokens: Sequence[int], depth: int
    ) -> Generator[DraftGuess, None, None]:
        """Take up the decided ``tokens``, root last, then guess what follows, each when asked for.

        Ends early at the end of the context, where no token is possible, and at once when a token
        isn't in the draft's vocabulary. Close the generator: it holds a fork.
        """
        depth = min(depth, self.context - len(tokens) + 1)
        if depth <= 0 or not self._knows(key, tokens):
            return
        text = self._caught_up(key, tokens)
        guess = text.next
        if guess is None:
            return
        yield guess
        if depth == 1:
            return
        fork = self.target.fork(text.state)
        try:
            for _ in range(depth - 1):
                guess = self._guess(fork, [guess.token])
                if guess is None:
                    return
                yield guess
        finally:
            self.target.close(fork)

    def _knows(self, key: int, tokens: Sequence[int]) -> bool:
        """Whether all tokens that are new are in the draft's vocabulary."""
        text = self._texts.get(key)
        return max(tokens[text.state.length if text else 0 :], default=0) < (
            self.target.config.vocab_size
        )

    def _caught_up(self, key: int, tokens: Sequence[int]) -> _Text:
        """The text with all of ``tokens`` in its state and the guess after them."""
        text = self._texts.get(key)
        if text is None or not self._continues(text, len(tokens)):
            self.open(key)
            text = self._texts[key]
        state = text.state
        if state.length == len(tokens):
            return text
        text.next = None
        # the end in one pass with the logits; a long beginning doesn't need any
        start = max(len(tokens) - self._tail, state.length)
        while state.length < start:
            stop = min(state.length + self.target.options.chunk, start)
            self.target.prefill([(state, tokens[state.length : stop])])
        text.next = self._guess(state, tokens[start:])
        return text

    def _continues(self, text: _Text, length: int) -> bool:
        """Whether a text of that length can go on from the state: not after a failed pass."""
        state = text.state
        if state.phase is Phase.BROKEN or state.length > length:
            return False
        return state.length < length or text.next is not None

    def _guess(self, state: State, tokens: Sequence[int]) -> DraftGuess | None:
        """Move on by ``tokens``; the most likely token after them, None if none is possible."""
        verified = self.target.prefill([(state, tokens)], logits=True)
        if verified is None:
            raise SpeclaError("prefill returned no logits")
        return self._choice(verified, len(tokens) - 1)

    def _choice(self, verified: Verified, row: int) -> DraftGuess | None:
        token = int(self.target.argmax(verified)[row])
        if token < 0:
            return None
        return DraftGuess(token, log_probability(self.target.logits(verified, row), token))
