"""How the children of a tree's nodes are scored from a drafted block.

A block has one row of logits per depth. On their own the rows say nothing about each other:
whatever the parent, its children are the row's best (:class:`MarginalRows`). The other classes
take the parent into account: with DSpark's Markov head, with DFlash2's selector, or by drafting
again.

Each is an ``Expand`` of ``specla.core.trees`` and reads a draft that the drafter's next call
overwrites. Children with equal log-probabilities stand in the order of the row that they come from.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.core.trees import Expand, Node
from specla.models.dflash.block import BlockDraft, ConfidenceHead, Float64, MarkovHead, Selector

Floats = npt.NDArray[np.floating[Any]]
Children = tuple[list[int], list[float]]

_SORTED = 1024
"""Up to so many values, sorting all of them is the quickest way to the best few."""

_DEEPEST = -600.0
"""A shortlist this far below the rest of its row (in ln) has no chance; exp of it is still a
number."""


class MarginalRows:
    """The row's own ``top_k`` best: plain DFlash."""

    def __init__(self, draft: BlockDraft, top_k: int) -> None:
        self._ids = draft.ids[:, :top_k].tolist()
        self._log_probs = (draft.values[:, :top_k] - draft.log_total[:, None]).tolist()

    def __call__(self, node: Node) -> Children:
        return self._ids[node.depth], self._log_probs[node.depth]


class MarkovRows:
    """A row's ``shortlist`` best, scored again with the Markov bias of each node's own token.

    Their best ``top_k`` are the children. The tokens outside the shortlist count with the
    probability mass that they have without a bias; vocab_size tells whether there are any.
    """

    def __init__(
        self, draft: BlockDraft, head: MarkovHead, top_k: int, shortlist: int, vocab_size: int
    ) -> None:
        self._top_k = top_k
        self._ids = draft.ids[:, :shortlist]
        self._bias = head.biases(self._ids)
        # in units of the whole row without a bias
        self._stated = draft.values[:, :shortlist] - draft.log_total[:, None]
        self._rest = [0.0] * draft.depth
        if self._ids.shape[1] < vocab_size:
            self._rest = np.maximum(1.0 - np.exp(self._stated).sum(axis=1), 0.0).tolist()

    def __call__(self, node: Node) -> Children:
        scores = self._stated[node.depth] + self._bias(node.depth, node.token)
        highest = max(float(scores.max()), _DEEPEST)
        total = float(np.exp(scores - highest).sum()) + self._rest[node.depth] * math.exp(-highest)
        if not total > 0.0:
            return [], []
        places = best_places(scores, self._top_k)
        log_total = highest + math.log(total)
        return self._ids[node.depth][places].tolist(), (scores[places] - log_total).tolist()


class MarkovVocabulary:
    """As :class:`MarkovRows` with the whole vocabulary for a shortlist."""

    def __init__(self, draft: BlockDraft, head: MarkovHead, top_k: int) -> None:
        self._draft, self._head, self._top_k = draft, head, top_k

    def __call__(self, node: Node) -> Children:
        logits = self._head.corrected(self._draft, node.depth, node.token)
        ids = best_places(logits, self._top_k)
        return ids.tolist(), (logits[ids] - log_sum_exp(logits)).tolist()


class SpineBias:
    """All nodes of a depth get the children of the greedy spine's node.

    So do earlier implementations of trees with a Markov head; it is here to be compared with.
    """

    def __init__(self, inner: Expand) -> None:
        self._inner = inner
        self._rows: list[Children] = []

    def __call__(self, node: Node) -> Children:
        while len(self._rows) <= node.depth:
            depth = len(self._rows)
            # a node's depth is the number of tokens before it, so the spine reaches here
            if depth and not self._rows[-1][0]:
                return [], []
            token = self._rows[-1][0][0] if depth else node.token
            self._rows.append(self._inner(Node(depth, token)))
        return self._rows[node.depth]


class SelectorRows:
    """The best ``top_k`` of the candidates that DFlash2's selector scores after a node's token."""

    def __init__(self, draft: BlockDraft, selector: Selector, top_k: int) -> None:
        self._draft, self._selector, self._top_k = draft, selector, top_k

    def __call__(self, node: Node) -> Children:
        (scores,) = self._selector.scores(self._draft, node.depth, [node.token])
        places = best_places(scores, self._top_k)
        return self._draft.ids[node.depth][places].tolist(), scores[places].tolist()


class ConditionalRows:
    """One drafter pass per node, with the node's path in place of masks.

    draft: the block without any path.  redraft: path -> the block whose row ``len(path)`` predicts
    what follows it.
    """

    def __init__(
        self, draft: BlockDraft, redraft: Callable[[tuple[int, ...]], BlockDraft], top_k: int
    ) -> None:
        self._draft, self._redraft, self._top_k = draft, redraft, top_k

    def __call__(self, node: Node) -> Children:
        draft, row = self._redraft(node.path()) if node.depth else self._draft, node.depth
        log_probs = draft.values[row, : self._top_k] - draft.log_total[row]
        return draft.ids[row, : self._top_k].tolist(), log_probs.tolist()


class Confident:
    """Another scoring, heeding the confidence that what is drafted after a node is accepted.

    p_min: a node below it has no children.  weigh: add ln(confidence) to each child.
    """

    def __init__(
        self, inner: Expand, draft: BlockDraft, head: ConfidenceHead, p_min: float, weigh: bool
    ) -> None:
        self._inner, self._draft, self._head = inner, draft, head
        self._p_min, self._weigh = p_min, weigh

    def __call__(self, node: Node) -> Children:
        confidence = float(self._head.score(self._draft, [node.depth], [node.token])[0])
        if not confidence >= self._p_min:
            return [], []
        ids, log_probs = self._inner(node)
        if self._weigh:
            weight = math.log(confidence) if confidence > 0.0 else -math.inf
            log_probs = [value + weight for value in log_probs]
        return ids, log_probs


def log_sum_exp(logits: Floats) -> Float64:
    """ln of the sum of exp over the last axis, in which a value is finite."""
    highest = logits.max(axis=-1, keepdims=True)
    total = np.exp(logits - highest).sum(axis=-1, dtype=np.float64)
    result: Float64 = np.log(total) + highest[..., 0]
    return result


def best_places(values: Floats, k: int) -> npt.NDArray[np.intp]:
    """Places of the k best of values [n], best first, equal ones by place; k at most n."""
    if len(values) <= _SORTED:
        return (-values).argsort(kind="stable")[:k]
    # k times the maximum: for long rows cheaper than sorting them
    left, count = values.copy(), min(k, len(values))
    places = np.empty(count, np.intp)
    for rank in range(count):
        places[rank] = at = left.argmax()
        left[at] = -np.inf
    return places


def at_temperature(draft: BlockDraft, temperature: float, backend: Any) -> BlockDraft:
    """The draft with its best values and their sums as if all logits were divided."""
    if temperature == 1.0:
        return draft
    logits = backend.download(draft.logits).astype(np.float64) / temperature
    values = draft.values / np.float32(temperature)
    return replace(draft, values=values, log_total=log_sum_exp(logits))
