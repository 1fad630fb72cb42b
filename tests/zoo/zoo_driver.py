"""What the zoo's tests share: sequences on a driver, plain decoding, guesses for the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from support.plain import plain_run

from specla.adapters.base import Adapter
from specla.core.proposal import Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.core.topology import Tree
from specla.engine import Session
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.lifecycle.texts import Text
from specla.fuzz.plain import PlainDecoder, same
from specla.models.qwen35.target import Qwen35Target, Verified
from specla.models.sequence import Sequence as TargetSequence
from specla.testing.forests import naive_path

PROMPT = (3, 1, 4, 1, 5)
GREEDY = Sampler(SamplingParams())
SAMPLED = Sampler(SamplingParams(temperature=1.0, seed=7))


def tokens_of(seed: int, count: int, vocab: int = 40) -> tuple[int, ...]:
    """Random token ids."""
    return tuple(np.random.default_rng(seed).integers(0, vocab, count).tolist())


# -- a driver: every row and every array is compared with plain decoding ---------------------------


def started(driver: Driver, prompt: Sequence[int] = PROMPT) -> Text:
    """A sequence that has taken in its prompt, chunk by chunk."""
    text = driver.open()
    assert text is not None
    chunk = driver.target.options.chunk
    for start in range(0, len(prompt), chunk):
        assert driver.prefill([(text, tuple(prompt[start : start + chunk]))])
    return text


def play(driver: Driver, text: Text, tree: Tree, path: Sequence[int]) -> None:
    """One round: verify, accept ``path``."""
    assert driver.verify([(text, tree)])
    assert driver.commit(text, tuple(path))


# -- a target by itself, on whatever runs its steps as an engine would -----------------------------


def opened(target: Qwen35Target, prompt: Sequence[int] = PROMPT) -> TargetSequence:
    """A sequence that has taken in its prompt."""
    sequence, chunk = target.open(), target.options.chunk
    for start in range(0, len(prompt), chunk):
        target.prefill([(sequence, prompt[start : start + chunk])])
    return sequence


def wrong_rows(
    target: Qwen35Target,
    verified: Verified,
    items: Sequence[tuple[Sequence[int], Tree]],
    plain: PlainDecoder,
) -> list[tuple[int, int]]:
    """(sequence, node) of the rows whose logits aren't plain decoding's. items: tokens in the
    state, and the tree."""
    logits, wrong = target.backend.download(verified.logits), []
    for b, (tokens, tree) in enumerate(items):
        for node in range(len(tree)):
            path = tuple(tree.tokens[n] for n in naive_path(tree, node))
            wanted = plain.after((*tokens, *path)).logits
            assert wanted is not None
            if not same(logits[verified.offsets[b] + node], wanted):
                wrong.append((b, node))
    return wrong


# -- the engine ------------------------------------------------------------------------------------


class Guesses(Adapter):
    """Proposes what a function says."""

    def __init__(self, propose: Callable[[SequenceView], Proposal]) -> None:
        super().__init__()
        self._propose = propose

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [self._propose(view) for view in views]


def truth(target: Qwen35Target, count: int, sampler: Sampler = GREEDY) -> list[int]:
    """What plain decoding says after PROMPT."""
    return list(plain_run(target, PROMPT, count, sampler)[0].tokens)


def knowing(right: Sequence[int], side: int = 0) -> Guesses:
    """The true continuation, each token the last of its siblings, as far as the budget goes."""

    def propose(view: SequenceView) -> Proposal:
        tokens: list[int] = []
        parents: list[int] = []
        spine = -1
        for token in right[len(view.tokens) - view.prompt_length :]:
            if len(tokens) + side + 1 > view.budget:
                break
            tokens += [(token + 1 + i) % 40 for i in range(side)] + [token]
            parents += [spine] * (side + 1)
            spine = len(tokens) - 1
        return Proposal(tokens, parents)

    return Guesses(propose)


def state_differs(session: Session, count: int, sampler: Sampler = GREEDY) -> list[str]:
    """Names of the state arrays that aren't plain decoding's after ``count`` tokens."""
    wanted = plain_run(session.target, PROMPT, count, sampler)[1]
    found = session.target.state_arrays(session.sequence)
    return [name for name, array in wanted.items() if not same(found[name], array)]
