"""How the children of a tree's nodes are scored from a drafted block.

A block has one row of logits per depth. On their own the rows say nothing about each other:
whatever the parent, its children are the row's best (:class:`MarginalRows`). The other classes
take the parent into account: with DSpark's Markov head, with DFlash2's selector, or by drafting
again.

Each is an ``Expand`` of ``specla.core.trees`` unless it says otherwise, and reads a draft that the
drafter's next call overwrites. Children with equal log-probabilities stand in the order of the row
that they come from.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.core.trees import Expand, Level
from specla.models.dflash.block import (
    BlockDraft,
    ConfidenceHead,
    Float64,
    Int32,
    MarkovHead,
    Selector,
)

Floats = npt.NDArray[np.floating[Any]]
Children = tuple[Int32, Floats]

_SORTED = 1024  # up to so many values, sorting all of them is the quickest way to the best few


class MarginalRows:
    """The row's own ``top_k`` best: plain DFlash."""

    def __init__(self, draft: BlockDraft, top_k: int) -> None:
        self._ids = draft.ids[:, :top_k]
        self._log_probs = draft.values[:, :top_k] - draft.log_total[:, None]

    def __call__(self, level: Level) -> Children:
        row = slice(level.depth, level.depth + 1)
        return self._ids[row], self._log_probs[row]


class MarkovRows:
    """A row's ``shortlist`` best, scored again with the Markov bias of each node's own token.

    Their best ``top_k`` are the children. The tokens outside the shortlist count with the
    probability mass that they have without a bias; vocab_size tells whether there are any.
    """

    def __init__(
        self, draft: BlockDraft, head: MarkovHead, top_k: int, shortlist: int, vocab_size: int
    ) -> None:
        self._head = head
        self._top_k = top_k
        self._ids = draft.ids[:, :shortlist]
        self._values = draft.values[:, :shortlist]
        if self._ids.shape[1] == vocab_size:
            self._rest = np.full(len(self._ids), -np.inf)
        else:
            self._rest = _log_minus(draft.log_total, log_sum_exp(self._values.astype(np.float64)))

    def __call__(self, level: Level) -> Children:
        ids = self._ids[level.depth]
        logits = self._head.bias(level.before.tolist(), ids) + self._values[level.depth]
        total = np.logaddexp(log_sum_exp(logits), self._rest[level.depth])
        places, best = best_columns(logits, self._top_k)
        return ids[places], best - total[:, None]


class MarkovVocabulary:
    """As :class:`MarkovRows` with the whole vocabulary for a shortlist, one node at a time."""

    def __init__(self, draft: BlockDraft, head: MarkovHead, top_k: int) -> None:
        self._draft, self._head, self._top_k = draft, head, top_k

    def __call__(self, level: Level) -> Children:
        rows = [self._head.corrected(self._draft, level.depth, t) for t in level.before.tolist()]
        logits = np.array(rows)
        ids, best = best_columns(logits, self._top_k)
        return ids.astype(np.int32), best - log_sum_exp(logits)[:, None]


class SpineBias:
    """All nodes of a depth get the children of the greedy spine's node.

    So do earlier implementations of trees with a Markov head; it is here to be compared with.
    """

    def __init__(self, inner: Expand) -> None:
        self._inner = inner
        self._spine = -1

    def __call__(self, level: Level) -> Children:
        if level.depth:
            level = replace(level, before=np.array([self._spine], np.int32))
        ids, log_probs = self._inner(level)
        self._spine = int(ids[0, 0])
        return ids, log_probs


class SelectorRows:
    """The best ``top_k`` of the candidates that DFlash2's selector scores after a node's token."""

    def __init__(self, draft: BlockDraft, selector: Selector, top_k: int) -> None:
        self._draft, self._selector, self._top_k = draft, selector, top_k

    def __call__(self, level: Level) -> Children:
        scores = self._selector.scores(self._draft, level.depth, level.before.tolist())
        places, best = best_columns(scores, self._top_k)
        return self._draft.ids[level.depth][places], best


class ConditionalRows:
    """One drafter pass per node, with the node's path in place of masks: an ``ExpandOne``.

    draft: the block without any path.  redraft: path -> the block whose row ``len(path)`` predicts
    what follows it.
    """

    def __init__(
        self, draft: BlockDraft, redraft: Callable[[tuple[int, ...]], BlockDraft], top_k: int
    ) -> None:
        self._draft, self._redraft, self._top_k = draft, redraft, top_k

    def __call__(self, path: tuple[int, ...]) -> Children:
        draft = self._redraft(path) if path else self._draft
        row = len(path)
        log_probs = draft.values[row, : self._top_k] - draft.log_total[row]
        return draft.ids[row, : self._top_k], log_probs


class Confident:
    """Another scoring, heeding the confidence that what is drafted after a node is accepted.

    p_min: a node below it has no children.  weigh: add ln(confidence) to each child.
    """

    def __init__(
        self, inner: Expand, draft: BlockDraft, head: ConfidenceHead, p_min: float, weigh: bool
    ) -> None:
        self._inner, self._draft, self._head = inner, draft, head
        self._p_min, self._weigh = p_min, weigh

    def __call__(self, level: Level) -> Children:
        ids, log_probs = self._inner(level)
        before = level.before.tolist()
        found = self._head.score(self._draft, [level.depth] * len(before), before)
        scores = found.astype(np.float64)[:, None]
        if self._weigh:
            log_probs = log_probs + np.log(np.maximum(scores, np.finfo(np.float64).tiny))
        log_probs = np.where(scores < self._p_min, -np.inf, log_probs)
        return np.broadcast_to(ids, log_probs.shape), log_probs


def log_sum_exp(logits: Floats) -> Float64:
    """ln of the sum of exp over the last axis, in which a value is finite."""
    highest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - highest).sum(axis=-1, dtype=np.float64)
    result: Float64 = np.log(total) + highest[..., 0]
    return result


def _log_minus(total: Float64, part: Floats) -> Float64:
    """ln(exp(total) - exp(part)), -inf where rounding leaves nothing."""
    left = -np.expm1(np.minimum(part - total, 0.0))
    with np.errstate(divide="ignore"):
        rest: Float64 = total + np.log(left)
    return rest


def best_columns(logits: Floats, k: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """Places [M, k] and values of each row's k best, best first, equal ones by place.

    Where no value above -inf is left, the value is -inf and the place means nothing.
    """
    if logits.size > _SORTED:
        return _best_by_rounds(logits, k)
    places = (-logits).argsort(axis=1, kind="stable")[:, :k]
    return places, logits[np.arange(len(logits))[:, None], places]


def _best_by_rounds(logits: Floats, k: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """k times the maximum: for long rows cheaper than sorting them."""
    left = logits.copy()
    every = np.arange(len(left))
    places = np.empty((len(left), min(k, left.shape[1])), np.intp)
    best = np.empty(places.shape, left.dtype)
    for rank in range(places.shape[1]):
        at = left.argmax(axis=1)
        places[:, rank], best[:, rank] = at, left[every, at]
        left[every, at] = -np.inf
    return places, best


def at_temperature(draft: BlockDraft, temperature: float, backend: Any) -> BlockDraft:
    """The draft with its best values and their sums as if all logits were divided."""
    if temperature == 1.0:
        return draft
    logits = backend.download(draft.logits).astype(np.float64) / temperature
    values = draft.values / np.float32(temperature)
    return replace(draft, values=values, log_total=log_sum_exp(logits))
