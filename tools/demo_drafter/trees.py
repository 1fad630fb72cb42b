"""Draft chains and best-first draft trees from one block's logits, and what a text accepts."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence

import numpy as np

# children(depth, token of the parent) -> (tokens, log-probabilities), best first
Children = Callable[[int, int], tuple[np.ndarray, np.ndarray]]


class Block:
    """The drafter's output for one root: ``base`` [slots, vocab] logits, ``bias`` [vocab, vocab].

    ``bias[p]`` is the Markov correction after token p. Rows are worked out once and kept.
    """

    def __init__(self, base: np.ndarray, bias: np.ndarray, root: int, width: int = 8) -> None:
        self.base, self.bias, self.root, self.width = base, bias, root, width
        self.kept: dict[tuple[int, int], tuple[np.ndarray, np.ndarray]] = {}
        self.spine: list[int] | None = None

    def _row(self, depth: int, prev: int) -> tuple[np.ndarray, np.ndarray]:
        key = (depth, prev)
        if key not in self.kept:
            logits = self.base[depth] if prev < 0 else self.base[depth] + self.bias[prev]
            top = np.argpartition(logits, -self.width)[-self.width :]
            top = top[np.argsort(-logits[top], kind="stable")]
            largest = logits[top[0]]
            log_sum = largest + np.log(np.exp(logits - largest).sum())
            self.kept[key] = top, logits[top] - log_sum
        return self.kept[key]

    def plain(self, depth: int, parent: int) -> tuple[np.ndarray, np.ndarray]:
        """Children without the Markov correction."""
        return self._row(depth, -1)

    def own(self, depth: int, parent: int) -> tuple[np.ndarray, np.ndarray]:
        """Children corrected for the branch's own parent."""
        return self._row(depth, parent)

    def of_spine(self, depth: int, parent: int) -> tuple[np.ndarray, np.ndarray]:
        """Children corrected for the token that the greedy chain has at the parent's depth."""
        if self.spine is None:
            self.spine = [self.root, *chain(self.own, self.root, len(self.base))]
        return self._row(depth, self.spine[depth])


def chain(children: Children, root: int, length: int) -> list[int]:
    """The most likely child of the most likely child, and so on."""
    tokens = [root]
    for depth in range(length):
        tokens.append(int(children(depth, tokens[-1])[0][0]))
    return tokens[1:]


def accepted_of_chain(tokens: Sequence[int], text: Sequence[int]) -> int:
    """How many leading tokens of the chain are the text's."""
    n = 0
    while n < min(len(tokens), len(text)) and tokens[n] == text[n]:
        n += 1
    return n


def accepted_of_tree(
    children: Children,
    root: int,
    text: Sequence[int],
    slots: int,
    budget: int,
    tau: float,
    top_k: int,
) -> int:
    """Depth to which the best-first tree of ``budget`` candidates holds the text's next tokens.

    A node's score is its cumulative log-probability; nodes below the best first candidate's score
    minus ``tau`` are left out; every node offers its ``top_k`` best children.
    """
    floor = children(0, root)[1][0] - tau
    # (-score, order of arrival, token, depth, on the text's path); ties go to the earlier one
    heap: list[tuple[float, int, int, int, bool]] = []
    arrivals, reached = 0, 0
    score, token, depth, on_path = 0.0, root, 0, True
    for _ in range(budget):
        if depth < slots:
            tokens, logp = children(depth, token)
            for child, lp in zip(tokens[:top_k].tolist(), logp[:top_k].tolist(), strict=True):
                if score + lp < floor:
                    break
                good = on_path and depth < len(text) and child == text[depth]
                heapq.heappush(heap, (-score - lp, arrivals, child, depth + 1, good))
                arrivals += 1
        if not heap:
            break
        minus_score, _, token, depth, on_path = heapq.heappop(heap)
        score = -minus_score
        if on_path:
            reached = depth
    return reached
