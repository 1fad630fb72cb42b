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
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.core.trees import Expand, Node
from specla.errors import ProposalError
from specla.models.dflash.block import BlockDraft, ConfidenceHead, Float64, MarkovHead, Selector

Floats = npt.NDArray[np.floating[Any]]
Children = tuple[list[int], list[float]]

_SORTED = 1024
"""Up to so many values, sorting all of them is the quickest way to the best few."""

_DEEPEST = -600.0
"""A shortlist this far below the rest of its row (in ln) has no chance; exp of it is still a
number."""


class BestOfRows:
    """The best of each row of a block as log-probabilities, and the mass of all others.

    width: how many of a row; vocab_size tells whether there are others.  temperature: divides what
    the draft says; the others count as if they were one token, which errs on the side of doubt.
    """

    def __init__(
        self, draft: BlockDraft, width: int, vocab_size: int, temperature: float = 1.0
    ) -> None:
        self.ids = draft.ids[:, :width]
        self._temperature = temperature
        self._stated = draft.values[:, :width] - draft.log_total[:, None]
        self._rest = np.zeros(draft.depth)
        if self.ids.shape[1] < vocab_size:
            mass = np.maximum(1.0 - np.exp(self._stated).sum(axis=1), 0.0)
            self._rest = mass ** (1.0 / temperature)

    def children(self, row: int, top_k: int, bias: Floats | float = 0.0) -> Children:
        """The ``top_k`` best of a row once ``bias`` [width] is added."""
        scores = (self._stated[row] + bias) / self._temperature
        highest = max(float(scores.max()), _DEEPEST)
        rest = float(self._rest[row]) * math.exp(-highest)
        total = float(np.exp(scores - highest).sum()) + rest
        if math.isnan(total):
            raise ProposalError("the draft's logits are NaN; check the draft's file")
        if not total > 0.0:
            return [], []
        places = best_places(scores, top_k)
        log_total = highest + math.log(total)
        return self.ids[row][places].tolist(), (scores[places] - log_total).tolist()


class MarginalRows:
    """The row's own ``top_k`` best: plain DFlash."""

    def __init__(
        self, draft: BlockDraft, top_k: int, vocab_size: int, temperature: float = 1.0
    ) -> None:
        rows = BestOfRows(draft, top_k, vocab_size, temperature)
        self._children = [rows.children(row, top_k) for row in range(draft.depth)]

    def __call__(self, node: Node) -> Children:
        return self._children[node.depth]


class MarkovRows:
    """A row's ``shortlist`` best, scored again with the Markov bias of each node's own token.

    Their best ``top_k`` are the children. The tokens outside the shortlist count with the
    probability mass that they have without a bias; vocab_size tells whether there are any.
    """

    def __init__(
        self,
        draft: BlockDraft,
        head: MarkovHead,
        top_k: int,
        shortlist: int,
        vocab_size: int,
        temperature: float = 1.0,
    ) -> None:
        self._top_k = top_k
        self._rows = BestOfRows(draft, shortlist, vocab_size, temperature)
        self._bias = head.biases(self._rows.ids)

    def __call__(self, node: Node) -> Children:
        bias = self._bias(node.depth, node.token)
        return self._rows.children(node.depth, self._top_k, bias)


class MarkovVocabulary:
    """As :class:`MarkovRows` with the whole vocabulary for a shortlist."""

    def __init__(
        self, draft: BlockDraft, head: MarkovHead, top_k: int, temperature: float = 1.0
    ) -> None:
        self._draft, self._head, self._top_k = draft, head, top_k
        self._temperature = np.float32(temperature)

    def __call__(self, node: Node) -> Children:
        logits = self._head.corrected(self._draft, node.depth, node.token) / self._temperature
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

    def __init__(
        self, draft: BlockDraft, selector: Selector, top_k: int, temperature: float = 1.0
    ) -> None:
        self._draft, self._selector, self._top_k = draft, selector, top_k
        self._temperature = temperature

    def __call__(self, node: Node) -> Children:
        (scores,) = self._selector.scores(self._draft, node.depth, [node.token])
        if self._temperature != 1.0:
            scores = scores / self._temperature
            scores -= log_sum_exp(scores)
        places = best_places(scores, self._top_k)
        return self._draft.ids[node.depth][places].tolist(), scores[places].tolist()


class ConditionalRows:
    """One drafter pass per node, with the node's path in place of masks.

    draft: the block without any path.  redraft: path -> the block whose row ``len(path)`` predicts
    what follows it.
    """

    def __init__(
        self,
        draft: BlockDraft,
        redraft: Callable[[tuple[int, ...]], BlockDraft],
        top_k: int,
        vocab_size: int,
        temperature: float = 1.0,
    ) -> None:
        self._draft, self._redraft, self._top_k = draft, redraft, top_k
        self._rest = vocab_size, temperature

    def __call__(self, node: Node) -> Children:
        draft = self._redraft(node.path()) if node.depth else self._draft
        return BestOfRows(draft, self._top_k, *self._rest).children(node.depth, self._top_k)


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
