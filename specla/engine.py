"""The decode loop: propose, verify, accept, commit. Tokens in, token events out.

The engine works on token ids; text, stop strings and files are the caller's. One session is one
sequence; it can go on after a stop, and after more tokens are appended.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.core.acceptance import Acceptance, cut, walk
from specla.core.proposal import Outcome, Proposal, ReadOnly, SequenceView, to_tree
from specla.core.sampling import Sampler
from specla.core.topology import Tree, prune
from specla.errors import CapacityError, OptionError, SpeclaError
from specla.models.qwen35.target import Qwen35Target, Verified
from specla.stats import GenerationStats

DEFAULT_BUDGET = 22
"""Most candidates of one round unless the caller says otherwise (SpecLA's default)."""


class Stop(Enum):
    """Why a generation ended."""

    END_OF_TEXT = "end of text"
    STOP_RULE = "stop rule"
    MAX_TOKENS = "token limit"
    CONTEXT = "context is full"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class TokenEvent:
    """One emitted token. position: its index in prompt plus text. stop: set on the last one."""

    token: int
    position: int
    stop: Stop | None = None


@dataclass(frozen=True)
class Request:
    """One generation. stop_ids: tokens that end the text (they are emitted, as the last one).

    stop_rule: told every emitted token, says True to stop after it: stop strings, say.
    on_logits: told (position, logits float32 [vocab]) of every emitted token, for checks.
    """

    max_tokens: int
    sampler: Sampler
    stop_ids: frozenset[int] = frozenset()
    budget: int = DEFAULT_BUDGET
    stop_rule: Callable[[int], bool] | None = None
    on_logits: Callable[[int, npt.NDArray[np.float32]], None] | None = field(
        default=None, repr=False
    )

    def __post_init__(self) -> None:
        if self.max_tokens < 0:
            raise OptionError(f"max_tokens is {self.max_tokens}; it must be 0 or more")
        if self.budget < 0:
            raise OptionError(f"budget is {self.budget}; it must be 0 or more")


def target_info(target: Qwen35Target, needs: Needs) -> TargetInfo:
    """The target as an adapter may know it. Raises OptionError if it can't give what is needed."""
    missing = [layer for layer in needs.features if layer not in target.options.features]
    if missing:
        raise OptionError(
            f"the adapter needs features of layers {missing}, which this target does not capture; "
            f"load it with TargetOptions(features={needs.features})"
        )
    config = target.config
    return TargetInfo(
        architecture="qwen35",
        vocab_size=config.vocab_size,
        d_model=config.d_model,
        n_layers=config.n_layers,
        eos_ids=config.eos_ids,
        max_nodes=target.options.max_nodes,
        backend=target.backend,
        embed=target.embed if needs.embeddings else None,
        lm_head=target.lm_head if needs.lm_head else None,
    )


def _bind(adapter: Adapter, name: str, target: Qwen35Target) -> None:
    """Show the adapter its target; whatever goes wrong becomes an OptionError that names it."""
    try:
        adapter.bind(target_info(target, adapter.needs()))
    except MemoryError:
        raise
    except Exception as error:
        what = str(error) if isinstance(error, SpeclaError) else f"{type(error).__name__}: {error}"
        if repr(name) in what:
            raise OptionError(what) from error
        raise OptionError(f"adapter {name!r} can't be used: {what}") from error


_keys = itertools.count()


class Session:
    """One sequence and its adapter.

    prompt: token ids; the last one becomes the root, the others are prefilled.
    After any stop, the state holds every token but the newest, which is the next root, exactly as
    in plain decoding; :meth:`generate` and :meth:`extend` go on from there.
    on_prefill: told (tokens done, tokens in all) after every chunk of a prefill.
    Raises CapacityError when the prompt is empty or longer than the context.
    """

    def __init__(
        self,
        target: Qwen35Target,
        adapter: Adapter,
        prompt: Sequence[int],
        *,
        adapter_name: str = "custom",
        on_prefill: Callable[[int, int], None] | None = None,
    ) -> None:
        if not len(prompt):
            raise CapacityError("the prompt is empty; give at least one token")
        context = target.options.context
        if len(prompt) > context:
            raise CapacityError(
                f"the prompt has {len(prompt)} tokens, more than the context of {context}; "
                f"shorten it or raise the context size"
            )
        self.target = target
        self.adapter = adapter
        self.adapter_name = adapter_name
        self._on_prefill = on_prefill
        self.stats = GenerationStats(prompt_tokens=len(prompt))
        self._cancelled = False
        self._opened = False
        self._key = next(_keys)
        self._tokens: list[int] = [int(token) for token in prompt]
        self._prompt_length = len(prompt)
        _bind(adapter, adapter_name, target)
        self.sequence = target.open()
        try:
            self._prefill(self._tokens[:-1])
            self._guarded(lambda: adapter.open(self._view(0, 0)), None)
        except BaseException:
            self.target.close(self.sequence)
            raise
        self._opened = True

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and text so far, the root last."""
        return ReadOnly(self._tokens)

    def cancel(self) -> None:
        """Stop after the token that is being emitted. Safe from a signal handler or a thread."""
        self._cancelled = True

    def extend(self, tokens: Sequence[int]) -> None:
        """Append tokens (a user's next turn, say); the last one becomes the root."""
        if not len(tokens):
            return
        if len(self._tokens) + len(tokens) > self.target.options.context:
            raise CapacityError(
                f"{len(tokens)} more tokens don't fit the context of "
                f"{self.target.options.context}; {len(self._tokens)} are in use"
            )
        self._prefill([self._tokens[-1], *tokens[:-1]])
        self._tokens += [int(token) for token in tokens]

    def close(self) -> None:
        """Give everything back. Idempotent."""
        if not self._opened:
            return
        self._opened = False
        self._guarded(lambda: self.adapter.close(self._view(0, 0)), None)
        self.target.close(self.sequence)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- the loop ------------------------------------------------------------------------------

    def generate(self, request: Request) -> Iterator[TokenEvent]:
        """Emit tokens until a stop. The generator may be closed after any token.

        A stop, whatever its cause, takes effect before the commit: tokens that were not emitted
        never enter the state.
        """
        emitted = 0
        try:
            while emitted < request.max_tokens and not self._cancelled:
                if self.sequence.length >= self.target.options.context:
                    return
                for event in self._round(request, request.max_tokens - emitted):
                    emitted += 1
                    yield event
                    if event.stop is not None:
                        return
        finally:
            self._cancelled = False

    def _round(self, request: Request, remaining: int) -> Iterator[TokenEvent]:
        room = self.target.options.context - self.sequence.length - 1
        max_depth = min(remaining - 1, room)
        budget = max(min(request.budget, self.target.options.max_nodes - 1), 0)
        view = self._view(budget if max_depth else 0, max_depth)
        with self.stats.timed("draft"):
            tree, kept, refusal = self._propose(view)
        with self.stats.timed("verify"):
            verified = self.target.verify([(self.sequence, tree)])
        acceptance, count = Acceptance((0,), -1), 0
        try:
            with self.stats.timed("choose"):
                acceptance = walk(tree, self._chooser(request.sampler, verified))
            for node, token in zip(acceptance.path, acceptance.emitted(tree), strict=True):
                position = len(self._tokens) + count
                if request.on_logits is not None:
                    request.on_logits(position, self.target.logits(verified, node))
                stop = self._stop(request, token, count + 1, remaining)
                count += 1
                yield TokenEvent(token, position, stop)
                if stop is not None:
                    break
        finally:
            # also when the consumer closed the generator: what it saw is what is committed
            self._settle(acceptance, tree, kept, count, refusal)

    def _stop(self, request: Request, token: int, count: int, remaining: int) -> Stop | None:
        if token in request.stop_ids:
            return Stop.END_OF_TEXT
        if request.stop_rule is not None and request.stop_rule(token):
            return Stop.STOP_RULE
        if self._cancelled:
            return Stop.CANCELLED
        if count == remaining:
            return Stop.MAX_TOKENS
        if self.sequence.length + count >= self.target.options.context:
            return Stop.CONTEXT
        return None

    def _settle(
        self,
        acceptance: Acceptance,
        tree: Tree,
        kept: tuple[int, ...],
        count: int,
        refusal: str | None,
    ) -> None:
        if count == 0:
            self.target.discard(self.sequence)
            return
        final = cut(acceptance, tree, count)
        with self.stats.timed("commit"):
            self.target.commit(self.sequence, final.path)
        self._tokens += final.emitted(tree)
        self.stats.emitted += count
        self.stats.rounds += 1
        self.stats.rows += len(tree)
        self.stats.accept_lengths[count] += 1
        accepted = tuple(kept[node] - 1 for node in final.path[1:])
        outcome = Outcome(accepted, final.bonus, refusal)
        with self.stats.timed("draft"):
            self._guarded(lambda: self.adapter.observe([self._view(0, 0)], [outcome]), None)

    # -- the draft side: never trusted -----------------------------------------------------------

    def _propose(self, view: SequenceView) -> tuple[Tree, tuple[int, ...], str | None]:
        """Root and candidates; after a bad proposal the root alone, and why."""
        lone = Tree.lone(view.root)
        if view.budget == 0:
            return lone, (0,), None
        before = self.stats.refused
        proposals = self._guarded(lambda: self.adapter.propose([view]), [Proposal()])
        try:
            if not isinstance(proposals, (list, tuple)) or len(proposals) != 1:
                raise SpeclaError(
                    f"adapter {self.adapter_name!r} must return one proposal per view"
                )
            tree = to_tree(
                proposals[0],
                view,
                vocab_size=self.target.config.vocab_size,
                adapter=self.adapter_name,
            )
        except SpeclaError as error:
            self._refuse(str(error))
            return lone, (0,), str(error)
        refusal = self.stats.refusal if self.stats.refused > before else None
        pruned, kept = prune(tree, view.max_depth)
        return pruned, kept, refusal

    def _guarded(self, call: Callable[[], Any], otherwise: Any) -> Any:
        """An adapter that raises costs speed, not the text."""
        try:
            return call()
        except Exception as error:
            self._refuse(f"adapter {self.adapter_name!r} failed: {type(error).__name__}: {error}")
            return otherwise

    def _refuse(self, reason: str) -> None:
        self.stats.refused += 1
        self.stats.refusal = reason

    # -- pieces -----------------------------------------------------------------------------------

    def _prefill(self, tokens: Sequence[int]) -> None:
        chunk = self.target.options.chunk
        with self.stats.timed("prefill"):
            for start in range(0, len(tokens), chunk):
                self.target.prefill([(self.sequence, tokens[start : start + chunk])])
                if self._on_prefill is not None:
                    self._on_prefill(min(start + chunk, len(tokens)), len(tokens))

    def _view(self, budget: int, max_depth: int) -> SequenceView:
        return SequenceView(
            key=self._key,
            tokens=ReadOnly(self._tokens),
            prompt_length=self._prompt_length,
            budget=budget,
            max_depth=max_depth,
            features=lambda start, stop: self.target.features(self.sequence, start, stop),
        )

    def _chooser(
        self, sampler: Sampler, verified: Verified
    ) -> Callable[[int, tuple[int, ...]], int]:
        """The target's choice at a node, asking the device for no more than the sampler needs."""
        vocab = self.target.config.vocab_size
        top = sampler.top_needed(vocab)
        if top == 1 and sampler.params.is_greedy:
            greedy = self.target.argmax(verified)

            def from_argmax(node: int, accepted: tuple[int, ...]) -> int:
                if greedy[node] < 0:
                    position = len(self._tokens) + len(accepted)
                    raise SpeclaError(
                        f"no token is possible at position {position}: every logit is NaN or "
                        f"-inf; check the model file"
                    )
                return int(greedy[node])

            return from_argmax
        if top is None:

            def from_row(node: int, accepted: tuple[int, ...]) -> int:
                history = [*self._tokens, *accepted]
                return sampler.choose(self.target.logits(verified, node), history, len(history))

            return from_row
        values, ids = self.target.top_k(verified, top)

        def from_top(node: int, accepted: tuple[int, ...]) -> int:
            position = len(self._tokens) + len(accepted)
            return sampler.choose_from_top(values[node], ids[node], position, vocab_size=vocab)

        return from_top
