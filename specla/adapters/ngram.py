"""Guesses from the text itself: what followed the last tokens when they occurred before."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from specla.adapters.base import Adapter
from specla.adapters.checks import check_integers
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_NODES

MAX_MATCH = 32
MAX_OCCURRENCES = 4096


@dataclass(frozen=True)
class NgramOptions:
    """Options of the ngram adapter.

    min_match, max_match: shortest and longest suffix that is looked up, in tokens.  max_depth:
    deepest candidate.  max_children: most candidates after the same path.  occurrences: how many
    earlier occurrences are looked at, the most recent ones; they bound the work of a round.
    """

    min_match: int = 2
    max_match: int = 8
    max_depth: int = 32
    max_children: int = 8
    occurrences: int = 64

    def __post_init__(self) -> None:
        check_integers(
            "ngram",
            self,
            max_match=(1, MAX_MATCH),
            max_depth=(1, MAX_NODES),
            max_children=(1, MAX_NODES),
            occurrences=(1, MAX_OCCURRENCES),
        )
        check_integers("ngram", self, min_match=(1, self.max_match))


class NgramAdapter(Adapter):
    """Proposes the continuations of the longest suffix of the text that occurred before.

    All occurrences looked at merge into one tree: a node's count is how many of them run through
    it, its log-probability ln(count / count of its parent), the root's count being the number of
    occurrences. Nodes are chosen best first by the probability of their path, which is their count
    over the root's, so the order is exact: higher count, then smaller depth, then the more recent
    latest occurrence, then the smaller token id. That is also the order of the proposal.
    """

    Options = NgramOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options if options is not None else NgramOptions())
        self._indices: dict[int, NgramIndex] = {}

    def open(self, view: SequenceView) -> None:
        """Index the prompt; a sequence opened again starts from scratch."""
        self._indices.pop(view.key, None)
        self._index(view)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One proposal per view; empty where the suffix is new."""
        return [self._propose(view) for view in views]

    def close(self, view: SequenceView) -> None:
        """Drop the index of the sequence."""
        self._indices.pop(view.key, None)

    def _propose(self, view: SequenceView) -> Proposal:
        options = self.options
        index = self._index(view)
        depth = min(options.max_depth, view.max_depth)
        ends = index.latest(options.occurrences)
        if not ends or depth <= 0 or view.budget <= 0:
            return Proposal()
        return grow(index.tokens, ends, view.budget, depth, options.max_children)

    def _index(self, view: SequenceView) -> NgramIndex:
        """The index of the sequence, brought up to date."""
        index = self._indices.get(view.key)
        if index is None or not index.precedes(view.tokens):
            index = NgramIndex(self.options.min_match, self.options.max_match)
            self._indices[view.key] = index
        index.extend(view.tokens[len(index.tokens) :])
        return index


class NgramIndex:
    """Where each n-gram of a growing text ends, for every n of a range.

    ``end`` is the place after an n-gram, so its continuation is ``tokens[end:]``. N-grams that end
    with the text have none and are indexed when the text grows. Extending takes time and memory in
    proportion to the new tokens.
    """

    def __init__(self, min_match: int, max_match: int) -> None:
        self.tokens: list[int] = []
        self._chains = {n: _Chain() for n in range(max_match, min_match - 1, -1)}

    def precedes(self, tokens: Sequence[int]) -> bool:
        """Whether ``tokens`` seems to be the indexed text plus more.

        Only the last token is compared: within a sequence a text grows at its end, and should it
        not, the guesses get worse but stay valid.
        """
        count = len(self.tokens)
        return not count or (len(tokens) >= count and tokens[count - 1] == self.tokens[-1])

    def extend(self, new: Sequence[int]) -> None:
        """Append tokens."""
        start = len(self.tokens)
        self.tokens.extend(new)
        for n, chain in self._chains.items():
            for end in range(max(start, n), len(self.tokens)):
                chain.add(tuple(self.tokens[end - n : end]), end)

    def latest(self, limit: int) -> list[int]:
        """Ends of the earlier occurrences of the longest suffix that has any, at most ``limit``,
        most recent first. They may overlap the suffix."""
        for n, chain in self._chains.items():
            if len(self.tokens) > n:
                ends = chain.ends(tuple(self.tokens[-n:]), limit)
                if ends:
                    return ends
        return []


@dataclass
class _Chain:
    """All occurrences of the n-grams of one length, linked from each to the one before."""

    last: dict[tuple[int, ...], int] = field(default_factory=dict)
    # by end minus the first end; 0 is no end of an n-gram, so it says "none"
    before: list[int] = field(default_factory=list)

    def add(self, gram: tuple[int, ...], end: int) -> None:
        self.before.append(self.last.get(gram, 0))
        self.last[gram] = end

    def ends(self, gram: tuple[int, ...], limit: int) -> list[int]:
        result: list[int] = []
        end = self.last.get(gram, 0)
        while end and len(result) < limit:
            result.append(end)
            end = self.before[end - len(gram)]
        return result


def grow(
    tokens: Sequence[int], ends: Sequence[int], budget: int, max_depth: int, max_children: int
) -> Proposal:
    """The tree of the continuations ``tokens[end:]``, the best ``budget`` nodes of it.

    ends: distinct, most recent (largest) first.  Order and log-probabilities: see
    :class:`NgramAdapter`. An occurrence so recent that its continuation reaches the end of the
    text counts for the nodes that it has.
    """
    chosen: list[int] = []
    parents: list[int] = []
    log_probs: list[float] = []
    # entries: (-count, depth, -most recent end, token, parent, ends through it). No two share
    # depth and most recent end, so what comes after these never decides.
    heap: list[tuple[int, int, int, int, int, Sequence[int]]] = []

    def expand(parent: int, depth: int, through: Sequence[int]) -> None:
        groups: dict[int, list[int]] = {}
        for end in through:
            if end + depth < len(tokens):
                groups.setdefault(tokens[end + depth], []).append(end)
        entries = [(-len(g), depth + 1, -g[0], token, parent, g) for token, g in groups.items()]
        for entry in sorted(entries)[:max_children]:
            heapq.heappush(heap, entry)

    counts = {-1: len(ends)}
    expand(-1, 0, ends)
    while heap and len(chosen) < budget:
        _, depth, _, token, parent, through = heapq.heappop(heap)
        node = len(chosen)
        counts[node] = len(through)
        chosen.append(token)
        parents.append(parent)
        log_probs.append(math.log(counts[node] / counts[parent]))
        if depth < max_depth:
            expand(node, depth, through)
    return Proposal(chosen, parents, log_probs)
