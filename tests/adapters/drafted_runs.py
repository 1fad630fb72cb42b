"""What the tests of adapters with a draft model share: whole runs, checked against plain ones."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.check import Trace, compare, plain_decode
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.qwen35.target import Qwen35Target
from specla.stats import GenerationStats


class Corrupting(Adapter):
    """An inner adapter whose proposals are cut, or get a wrong token, now and then."""

    def __init__(self, inner: Adapter, vocab_size: int, seed: int = 0) -> None:
        super().__init__()
        self.inner, self.vocab_size, self.rng = inner, vocab_size, random.Random(seed)

    def needs(self) -> Needs:
        return self.inner.needs()

    def bind(self, target: TargetInfo) -> None:
        self.inner.bind(target)

    def open(self, view: SequenceView) -> None:
        self.inner.open(view)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self._corrupted(proposal) for proposal in self.inner.propose(views)]

    def _corrupted(self, proposal: Proposal) -> Proposal:
        tokens = list(proposal.tokens)
        at = self.rng.randrange(len(tokens) + 1) if tokens else 0
        if at < len(tokens):
            tokens[at] = (tokens[at] + 1) % self.vocab_size
        return Proposal.chain(tokens[: self.rng.randrange(len(tokens) + 1) or None])

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.inner.observe(views, outcomes)

    def close(self, view: SequenceView) -> None:
        self.inner.close(view)


def lossless_run(
    target: Qwen35Target,
    adapter: Adapter,
    prompt: Sequence[int],
    count: int,
    params: SamplingParams | None = None,
    budget: int = 16,
) -> tuple[list[int], GenerationStats]:
    """Decode, compare every byte with plain decoding, and return tokens and statistics.

    Raises MismatchError for a difference.
    """
    sampler, trace = Sampler(params or SamplingParams()), Trace()
    request = Request(count, sampler, budget=budget, on_logits=trace.on_logits)
    with Session(target, adapter, prompt, adapter_name="tested") as session:
        trace.tokens = [event.token for event in session.generate(request)]
        state: dict[str, Any] = target.state_arrays(session.sequence)
    plain, plain_state = plain_decode(target, prompt, len(trace.tokens), sampler)
    compare(trace, plain, state, plain_state, len(prompt))
    return trace.tokens, session.stats
