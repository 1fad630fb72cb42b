"""The decode loop: propose, verify, accept, commit. Tokens in, token events out.

The engine works on token ids; text, stop strings and files are the caller's. One session is one
sequence; it can go on after a stop, and after more tokens are appended.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing

from specla.adapters.base import Adapter
from specla.adapters.guard import GuardedAdapter
from specla.binding import bind
from specla.choosing import chooser
from specla.core.proposal import Outcome, ReadOnly, SequenceView
from specla.core.topology import as_integers
from specla.errors import CapacityError, LifecycleError, TopologyError
from specla.models.qwen35.target import Qwen35Target
from specla.request import DEFAULT_BUDGET, Request, Stop, TokenEvent
from specla.stats import GenerationStats
from specla.verification import TreeVerifier, Verifier

__all__ = ["DEFAULT_BUDGET", "Request", "Session", "Stop", "TokenEvent"]

_keys = itertools.count()


class Session:
    """One sequence and its adapter.

    prompt: token ids; the last one becomes the root, the others are prefilled.
    After any stop, the state holds every token but the newest, which is the next root, exactly as
    in plain decoding; :meth:`generate` and :meth:`extend` go on from there.
    on_prefill: told (tokens done, tokens in all) after every chunk of a prefill.
    verifier: how candidates are verified and the state rolled back (specla/verification.py).
    stop: why the last generation ended, or None.
    Raises CapacityError when the prompt is empty or longer than the context, TopologyError for a
    token that is not in the vocabulary.
    """

    def __init__(
        self,
        target: Qwen35Target,
        adapter: Adapter,
        prompt: Sequence[int],
        *,
        adapter_name: str = "custom",
        on_prefill: Callable[[int, int], None] | None = None,
        verifier: type[Verifier] = TreeVerifier,
    ) -> None:
        tokens = self._validated(target, prompt)
        if not tokens:
            raise CapacityError("the prompt is empty; give at least one token")
        context = target.options.context
        if len(tokens) > context:
            raise CapacityError(
                f"the prompt has {len(tokens)} tokens, more than the context of {context}; "
                f"shorten it or raise the context size"
            )
        self.target = target
        self.stop: Stop | None = None
        self._on_prefill = on_prefill
        self.stats = GenerationStats(prompt_tokens=len(tokens))
        self._draft = GuardedAdapter(
            adapter,
            adapter_name,
            target.config.vocab_size,
            on_refusal=self.stats.refuse,
            on_error=self.stats.fail,
        )
        self._cancelled = False
        self._running = False
        self._opened = False
        self._key = next(_keys)
        self._prompt_length = len(tokens)
        self._tokens = tokens[:1]
        self._staged: tuple[int, ...] = ()
        bind(adapter, adapter_name, target)
        self.sequence = target.open()
        self._verifier = verifier(target, self.sequence, self.stats)
        try:
            self._absorb(tokens[1:])
            with self.stats.timed("prefill"):
                self._draft.open(self._view(0, 0))
        except BaseException:
            self.target.close(self.sequence)
            raise
        self._opened = True

    @staticmethod
    def _validated(target: Qwen35Target, tokens: Sequence[int]) -> list[int]:
        ids = as_integers(tokens, "tokens")
        for i, token in enumerate(ids):
            if not 0 <= token < target.config.vocab_size:
                raise TopologyError(
                    f"tokens[{i}] is {token}; token ids are 0..{target.config.vocab_size - 1}"
                )
        return list(ids)

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and text so far, the root last."""
        return ReadOnly(self._tokens)

    def cancel(self) -> None:
        """Stop after the token that is being emitted; without a generation, stop the next one.

        Safe from a signal handler or a thread.
        """
        self._cancelled = True

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens (a user's next turn, say); the last one becomes the root.

        Refused, with nothing changed, while a generation is unfinished, and for tokens that don't
        fit or don't exist. If a forward pass fails, the tokens of the chunks before it are in.
        """
        self._require_idle("extend")
        ids = self._validated(self.target, tokens)
        if len(self._tokens) + len(ids) > self.target.options.context:
            raise CapacityError(
                f"{len(ids)} more tokens don't fit the context of "
                f"{self.target.options.context}; {len(self._tokens)} are in use"
            )
        self.stats.prompt_tokens += len(ids)
        self._absorb(ids)

    def _absorb(self, tokens: list[int]) -> None:
        """Prefill the root and all of ``tokens`` but the last, which becomes the root."""
        chunk = self.target.options.chunk
        with self.stats.timed("prefill"):
            for start in range(0, len(tokens), chunk):
                piece = tokens[start : start + chunk]
                self._staged = tuple(piece)
                self.target.prefill([(self.sequence, [self._tokens[-1], *piece[:-1]])])
                self._take_staged()
                self.stats.prefilled += len(piece)
                if self._on_prefill is not None:
                    self._on_prefill(start + len(piece), len(tokens))

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if not self._opened:
            return
        self._opened = False
        try:
            self._draft.close(self._view(0, 0))
        finally:
            try:
                self._verifier.close()
            finally:
                self.target.close(self.sequence)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop ------------------------------------------------------------------------------

    def generate(self, request: Request) -> Iterator[TokenEvent]:
        """Emit tokens until a stop. The generator may be closed after any token.

        A stop, whatever its cause, takes effect before the commit: tokens that were not emitted
        never enter the state. One generation at a time: LifecycleError while another is unfinished.
        """
        self._require_idle("generate")
        self._running = True
        self.stop = None
        emitted = 0
        try:
            while self.stop is None:
                # the consumer may have closed the session between two tokens
                self._require_open("generate")
                self.stop = self._stop_between_rounds(request, emitted)
                if self.stop is not None:
                    return
                # closing(): the round settles here, not when the garbage collector finds it
                with closing(self._round(request, request.max_tokens - emitted)) as events:
                    for event in events:
                        emitted += 1
                        yield event
        finally:
            self._cancelled = False
            self._running = False

    def _take_staged(self) -> None:
        """Append the tokens that the target's last moves decided, exactly once.

        The state is the judge of how many: an interrupt may fall between a move and these lines,
        and then the next operation comes here first.
        """
        self._tokens += self._staged[: self.sequence.length + 1 - len(self._tokens)]
        self._staged = ()

    def _require_open(self, operation: str) -> None:
        if not self._opened:
            raise LifecycleError(f"{operation} on a session that was closed; open a new one")

    def _require_idle(self, operation: str) -> None:
        self._require_open(operation)
        if self._running:
            raise LifecycleError(
                f"{operation} while a generation is unfinished; close its generator first"
            )
        self._verifier.mend()
        self._take_staged()

    def _stop_between_rounds(self, request: Request, emitted: int) -> Stop | None:
        if self._cancelled:
            return Stop.CANCELLED
        if emitted >= request.max_tokens:
            return Stop.MAX_TOKENS
        if self.sequence.length >= self.target.options.context:
            return Stop.CONTEXT
        return None

    def _round(self, request: Request, remaining: int) -> Generator[TokenEvent, None, None]:
        room = self.target.options.context - self.sequence.length - 1
        max_depth = min(remaining - 1, room)
        budget = max(min(request.budget, self.target.options.max_nodes - 1), 0)
        greedy = request.sampler.params.is_greedy
        view = self._view(budget if max_depth else 0, max_depth, greedy=greedy)
        with self.stats.timed("draft"):
            tree, kept, refusal = self._draft.propose(view)
        before, count, nodes = self.stats.step_seconds, 0, []
        steps = self._verifier.decisions(
            tree,
            lambda verified: chooser(self.target, request.sampler, verified, self._tokens),
            logits=request.on_logits is not None,
        )
        try:
            for step in steps:
                position = len(self._tokens) + count
                if request.on_logits is not None and step.logits is not None:
                    request.on_logits(position, step.logits)
                self.stop = self._stop_after(request, step.token, count + 1, remaining)
                nodes.append(kept[step.node] - 1)
                self._staged = (*self._staged, step.token)
                count += 1
                yield TokenEvent(step.token, position, self.stop)
                if self._cancelled and self.stop is None:
                    self.stop = Stop.CANCELLED
                if self.stop is not None:
                    break
        finally:
            # also when the consumer closed the generator: what it saw is what is committed
            steps.close()
            self._settle(nodes, count, refusal, before)

    def _stop_after(self, request: Request, token: int, count: int, remaining: int) -> Stop | None:
        if token in request.stop_ids:
            return Stop.END_OF_TEXT
        if request.stop_rule is not None and request.stop_rule(token):
            return Stop.STOP_RULE
        if self._cancelled:
            return Stop.CANCELLED
        if count == remaining:
            return Stop.MAX_TOKENS
        if len(self._tokens) - 1 + count >= self.target.options.context:
            return Stop.CONTEXT
        return None

    def _settle(self, nodes: list[int], count: int, refusal: str | None, before: float) -> None:
        """nodes: of the path, numbered as in the proposal; the root is -1."""
        if not self._opened:
            return
        self._verifier.settle(count)
        # fewer are in where an interrupt of a commit left the sequence BROKEN: no round to tell of
        if count == 0 or self.sequence.length + 1 - len(self._tokens) < count:
            return
        bonus = self._staged[count - 1]
        self._take_staged()
        self.stats.emitted += count
        self.stats.rounds += 1
        self.stats.rows += self._verifier.rows
        self.stats.accept_lengths[count] += 1
        seconds = self.stats.step_seconds - before
        outcome = Outcome(tuple(nodes[1:count]), bonus, refusal, self._verifier.rows, seconds)
        with self.stats.timed("draft"):
            self._draft.observe(self._view(0, 0), outcome)

    # -- pieces -----------------------------------------------------------------------------------

    def _view(self, budget: int, max_depth: int, *, greedy: bool = False) -> SequenceView:
        return SequenceView(
            key=self._key,
            tokens=ReadOnly(self._tokens),
            prompt_length=self._prompt_length,
            budget=budget,
            max_depth=max_depth,
            features=lambda start, stop: self.target.backend.read_only(
                self.target.features(self.sequence, start, stop)
            ),
            greedy=greedy,
        )
