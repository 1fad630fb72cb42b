"""Chains from a block: the likeliest token of each row, and where confidence ends them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from specla.models.dflash.block import BlockDraft, BlockDrafter
from specla.models.draft_scores import leading_share, log_probability


def markov_chain(
    drafter: BlockDrafter, draft: BlockDraft, count: int
) -> tuple[list[int], list[float]]:
    """The greedy chain of ``count`` tokens and their log-probabilities, after correction.

    Each row is corrected for the token that was chosen before it, the root for the first; without
    a Markov head or selector it is the block's own argmax. Ties go to the lowest id. It ends before
    a row in which no token is possible.
    """
    tokens: list[int] = []
    log_probs: list[float] = []
    before = draft.root
    for row in range(min(count, draft.depth)):
        token, log_prob = best_of_row(drafter, draft, row, before)
        if not np.isfinite(log_prob):
            break
        tokens.append(token)
        log_probs.append(log_prob)
        before = token
    return tokens, log_probs


def best_of_row(
    drafter: BlockDrafter, draft: BlockDraft, row: int, before: int
) -> tuple[int, float]:
    """The likeliest token of a row and its log-probability, given the token before it.

    With a selector (DFlash2) the likeliest of its candidates, among which the probability is."""
    if drafter.selector is not None:
        scores = drafter.selector.scores(draft, row, [before])[0]
        best = int(scores.argmax())
        return int(draft.ids[row, best]), float(scores[best])
    if drafter.markov is None:
        return int(draft.ids[row, 0]), float(draft.values[row, 0] - draft.log_total[row])
    logits = drafter.markov.corrected(draft, row, before)
    token = int(logits.argmax())
    return token, log_probability(logits, token)


def confidences(drafter: BlockDrafter, draft: BlockDraft, tokens: Sequence[int]) -> list[float]:
    """How likely each token of a chain from row 0 on is to be accepted, given those before it.

    By the confidence head; without one, and without a Markov head, the softmax over the row's
    ``LEADERS`` largest logits, which ``draft`` must hold. 1.0 where there is no measure.
    """
    rows = range(len(tokens))
    if drafter.confidence is not None:
        if not tokens:
            return []
        before = [draft.root, *tokens[:-1]]
        return [float(x) for x in drafter.confidence.score(draft, rows, before)]
    if drafter.markov is not None:
        return [1.0] * len(tokens)
    return [leading_share(values) for values in draft.values[: len(tokens)]]


def confident_prefix(
    drafter: BlockDrafter, draft: BlockDraft, tokens: Sequence[int], least: float
) -> int:
    """How many leading tokens of a chain are to be kept: those before the first whose confidence is
    below ``least``. 0 keeps all."""
    if least <= 0:
        return len(tokens)
    return sum(1 for _ in takewhile(lambda c: c >= least, confidences(drafter, draft, tokens)))
