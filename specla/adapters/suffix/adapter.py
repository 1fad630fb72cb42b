"""Guesses from the text itself, and if wanted from earlier texts, by a suffix automaton."""

from __future__ import annotations

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specla.adapters.base import Adapter
from specla.adapters.checks import check_integers, check_number, check_probability
from specla.adapters.suffix.automaton import ROOT
from specla.adapters.suffix.corpus import MAX_TOKENS, Corpus
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_NODES

MATCH_LIMIT = 64
"""Longest suffix that is looked up: a longer one doesn't tell more."""

MAX_ALPHA = 1000.0

TINY = 1e-30
"""Less probable paths have no logarithm worth the name."""


@dataclass(frozen=True)
class SuffixOptions:
    """Options of the suffix adapter.

    min_match: shortest suffix that is looked up, in tokens.  max_depth: deepest candidate.
    alpha: candidates are no deeper than so many times the length of the match.  min_prob: paths
    less probable than this are not proposed.  max_children: most candidates after the same path
    for one match.  matches: how many lengths of the suffix are looked up, the longest first.
    shared: whether texts of earlier sequences are looked up, too.  max_tokens: how many tokens are
    remembered, per sequence or, if shared, in all; about 1 KB each.
    """

    min_match: int = 2
    max_depth: int = 32
    alpha: float = 2.0
    min_prob: float = 0.05
    max_children: int = 8
    matches: int = 4
    shared: bool = False
    max_tokens: int = 32768

    def __post_init__(self) -> None:
        check_integers(
            "suffix",
            self,
            min_match=(1, MATCH_LIMIT),
            max_depth=(1, MAX_NODES),
            max_children=(1, MAX_NODES),
            matches=(1, MATCH_LIMIT),
            max_tokens=(2 * MATCH_LIMIT, MAX_TOKENS),
        )
        check_number("suffix", self, "alpha", 0.0, MAX_ALPHA)
        check_probability("suffix", self, "min_prob")


class SuffixAdapter(Adapter):
    """Proposes what followed the longest suffix of the text that occurred before.

    The continuations of a match form a tree with counts: of a match with n earlier occurrences, a
    path that followed c of them has the probability c / n. Shorter suffixes occur more often and
    are followed by more; those of the next shorter matches (each the longest one that occurs more
    often than the one before) are added with the probability times 1 / (n + 1) for each longer
    match. A path found by several matches has the highest of its probabilities.

    Candidates are chosen best first: higher probability, then longer match, then smaller depth,
    then the more recent latest occurrence. That order is total, and that of the proposal. A
    log-probability is that of the path less that of the parent's path: ln(count / count of the
    parent) in the tree of one match.
    """

    Options = SuffixOptions

    def __init__(self, options: Any = None) -> None:
        super().__init__(options if options is not None else SuffixOptions())
        self._shared: Corpus | None = None
        self._corpora: dict[int, Corpus] = {}
        if self.options.shared:
            # what was decoded before decides, too
            vars(self)["deterministic"] = False

    def open(self, view: SequenceView) -> None:
        """Take up the prompt; a sequence opened again starts from scratch."""
        self._end(view.key)
        self._corpus(view)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One proposal per view; empty where the suffix is new."""
        return [self._propose(view) for view in views]

    def close(self, view: SequenceView) -> None:
        """Drop the sequence; a shared corpus keeps what it said."""
        if self.options.shared and view.key in self._corpora:
            self._corpus(view)  # the last tokens, too
        self._end(view.key)

    def _end(self, key: int) -> None:
        corpus = self._corpora.pop(key, None)
        if corpus is not None:
            corpus.close(key)

    def _corpus(self, view: SequenceView) -> Corpus:
        """The corpus of the sequence, brought up to date."""
        corpus = self._corpora.get(view.key)
        if corpus is None:
            corpus = self._shared
            if corpus is None:
                limit = MATCH_LIMIT + self.options.max_depth
                corpus = Corpus(limit, self.options.max_tokens)
            if self.options.shared:
                self._shared = corpus
            self._corpora[view.key] = corpus
        corpus.follow(view.key, view.tokens)
        return corpus

    def _propose(self, view: SequenceView) -> Proposal:
        corpus = self._corpus(view)
        matches = self._matches(corpus, view)
        if not matches or view.budget <= 0 or view.max_depth <= 0:
            return Proposal()
        return _grow(corpus, matches, self.options, view.budget, view.max_depth)

    def _matches(self, corpus: Corpus, view: SequenceView) -> list[tuple[int, int]]:
        """(state, length) of the suffixes that are looked up, longest first."""
        automaton = corpus.automaton
        state, length = automaton.match(corpus.cursor(view.key), MATCH_LIMIT)
        found: list[tuple[int, int]] = []
        while length >= self.options.min_match and len(found) < self.options.matches:
            found.append((state, length))
            state = automaton.link[state]
            length = automaton.length[state] if state > ROOT else 0
        return found


def _grow(
    corpus: Corpus,
    matches: Sequence[tuple[int, int]],
    options: SuffixOptions,
    budget: int,
    max_depth: int,
) -> Proposal:
    """The tree of the best ``budget`` continuations. Order: see :class:`SuffixAdapter`."""
    children, count, latest = (
        corpus.automaton.children,
        corpus.automaton.count,
        corpus.automaton.latest,
    )
    weights, depths, weight = [], [], 1.0
    for state, length in matches:
        # the suffix itself is no earlier occurrence
        earlier = count[state] - 1
        weights.append((weight, earlier))
        depths.append(min(int(options.alpha * length), options.max_depth, max_depth))
        weight /= earlier + 1
    tokens: list[int] = []
    parents: list[int] = []
    log_probs: list[float] = []
    chances = {-1: 1.0}
    nodes: dict[tuple[int, int], int] = {}
    # entries: (-probability, match, depth, -latest end, token, parent's node, state). An entry of
    # depth 0 stands for a whole match, whose tree is opened when nothing better is left.
    heap = [
        (-weights[k][0], k, 0, 0, -1, -1, state)
        for k, (state, _) in enumerate(matches)
        if depths[k] > 0 and weights[k][1] > 0
    ]
    heapq.heapify(heap)
    while heap and len(tokens) < budget:
        chance, k, depth, _, token, parent, state = heapq.heappop(heap)
        node = -1
        if depth:
            node = nodes.setdefault((parent, token), len(tokens))
            if node == len(tokens):
                tokens.append(token)
                parents.append(parent)
                chances[node] = -chance
                log_probs.append(min(math.log(-chance / chances[parent]), 0.0))
        if depth >= depths[k]:
            continue
        weight, earlier = weights[k]
        least = -max(options.min_prob, TINY)
        entries = [
            (chance, k, depth + 1, -latest[child], after, node, child)
            for after, child in children[state].items()
            if (chance := -weight * count[child] / earlier) <= least
        ]
        if len(entries) > options.max_children:
            entries = heapq.nsmallest(options.max_children, entries)
        for entry in entries:
            heapq.heappush(heap, entry)
    return Proposal(tokens, parents, log_probs)
