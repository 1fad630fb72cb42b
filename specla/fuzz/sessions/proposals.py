"""Sound proposals, made from what plain decoding will write: each must be verified.

What must be refused is in bad_proposals.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from specla.core.proposal import Proposal, SequenceView


@dataclass
class Moment:
    """A round as a maker of proposals sees it.

    future: count -> so many tokens that plain decoding writes next.  error: percent of levels
    whose right token is missing.  branch: children of a node of the path.  depth: of the path.
    """

    view: SequenceView
    rng: np.random.Generator
    future: Callable[[int], list[int]]
    vocab_size: int
    error: int = 0
    branch: int = 2
    depth: int = 4

    def junk(self, *excluded: int) -> int:
        """A token that is none of ``excluded``."""
        while True:
            token = int(self.rng.integers(self.vocab_size))
            if token not in excluded:
                return token


@dataclass(frozen=True)
class Claim:
    """What was proposed, in plain lists: a tree that must be verified."""

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def child(self, node: int, token: int) -> int | None:
        """The candidate under ``node`` (-1: the root) that carries ``token``."""
        for i, (parent, own) in enumerate(zip(self.parents, self.tokens, strict=True)):
            if (parent, own) == (node, token):
                return i
        return None

    def rows(self, max_depth: int) -> int:
        """Nodes that are verified, root included."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent < 0 else depths[parent] + 1)
        return 1 + sum(depth <= max_depth for depth in depths)


Lists = tuple[list[int], list[int]]


def nothing(moment: Moment) -> Lists:
    return [], []


def chain(moment: Moment) -> Lists:
    """The right tokens, some replaced by wrong ones."""
    count = min(moment.depth, moment.view.budget)
    tokens = [
        moment.junk(token) if moment.rng.integers(100) < moment.error else token
        for token in moment.future(count)
    ]
    return tokens, list(range(-1, count - 1))


def too_deep(moment: Moment) -> Lists:
    """All right, and as many as the budget allows, whatever can be used."""
    count = moment.view.budget
    return moment.future(count), list(range(-1, count - 1))


def wrong(moment: Moment) -> Lists:
    """No candidate is right."""
    count = min(moment.depth, moment.view.budget)
    tokens = [moment.junk(token) for token in moment.future(count)]
    return tokens, list(range(-1, count - 1))


def star(moment: Moment) -> Lists:
    """Children of the root only, the right one somewhere among them."""
    count = min(moment.view.budget, moment.vocab_size)
    (right,) = moment.future(1)
    others = [t for t in moment.rng.permutation(moment.vocab_size).tolist() if t != right]
    tokens = others[: count - 1]
    tokens.insert(int(moment.rng.integers(count)), right)
    return tokens, [-1] * count


def one(moment: Moment) -> Lists:
    """A single candidate, right or wrong."""
    (right,) = moment.future(1)
    return [moment.junk(right) if moment.rng.integers(100) < moment.error else right], [-1]


def root_again(moment: Moment) -> Lists:
    """The root's own token, again and again."""
    count = min(moment.depth, moment.view.budget)
    return [moment.view.root] * count, list(range(-1, count - 1))


def tree(moment: Moment) -> Lists:
    """The right path among wrong siblings, under which the right continuation stands as well."""
    tokens: list[int] = []
    parents: list[int] = []
    rng, budget, spine = moment.rng, moment.view.budget, -1
    right = moment.future(min(moment.depth, budget))
    for level, token in enumerate(right):
        kids = [moment.junk(token)]
        while len(kids) < moment.branch:
            kids.append(moment.junk(token, *kids))
        if rng.integers(100) >= moment.error:
            kids[-1] = token
        rng.shuffle(kids)
        kids = kids[: budget - len(tokens)]
        if not kids:
            break
        first = len(tokens)
        tokens += kids
        parents += [spine] * len(kids)
        decoy = first + int(rng.integers(len(kids)))
        spine = first + kids.index(token) if token in kids else first
        if decoy != spine:
            for copied in right[level + 1 : level + 1 + int(rng.integers(3))]:
                if len(tokens) < budget:
                    tokens.append(copied)
                    parents.append(decoy)
                    decoy = len(tokens) - 1
    return tokens, parents


def shuffled_tree(moment: Moment) -> Lists:
    """The same, its nodes in any order in which parents come first."""
    return _reordered(moment, *tree(moment), last=False)


def spine_last(moment: Moment) -> Lists:
    """The same, the right path behind everything else."""
    return _reordered(moment, *tree(moment), last=True)


def random_tree(moment: Moment) -> Lists:
    """Any tokens under any parents, siblings distinct."""
    nodes: list[tuple[int, int]] = []
    # few different tokens, so that a right one is often among them
    likely = moment.future(2)
    for i in range(int(moment.rng.integers(moment.view.budget + 1))):
        parent = int(moment.rng.integers(-1, len(nodes)))
        token = likely[i % 2] if moment.rng.integers(2) else moment.junk()
        if (parent, token) not in nodes:
            nodes.append((parent, token))
    return [token for _, token in nodes], [parent for parent, _ in nodes]


def _reordered(moment: Moment, tokens: list[int], parents: list[int], *, last: bool) -> Lists:
    """Parents first, otherwise any order; last: right ones as late as can be."""
    right, node = set(), -1
    for token in moment.future(moment.depth):
        found = Claim(tuple(tokens), tuple(parents)).child(node, token)
        if found is None:
            break
        right.add(found)
        node = found
    order: list[int] = []
    while len(order) < len(tokens):
        ready = [i for i, p in enumerate(parents) if i not in order and (p < 0 or p in order)]
        if last:
            ready = [i for i in ready if i not in right] or ready
        order.append(ready[int(moment.rng.integers(len(ready)))])
    number = {old: new for new, old in enumerate(order)} | {-1: -1}
    return [tokens[i] for i in order], [number[parents[i]] for i in order]


SOUND: dict[str, Callable[[Moment], Lists]] = {
    "nothing": nothing,
    "right chain": chain,
    "too deep": too_deep,
    "wrong": wrong,
    "star": star,
    "one": one,
    "root again": root_again,
    "tree": tree,
    "shuffled tree": shuffled_tree,
    "spine last": spine_last,
    "random tree": random_tree,
}

# -- ways to hand a sound tree over ----------------------------------------------------------------


def _plainly(tokens: list[int], parents: list[int]) -> Any:
    return Proposal(tokens, parents)


def _with_log_probs(tokens: list[int], parents: list[int]) -> Any:
    return Proposal(tokens, parents, [-0.5 * (i % 3) for i in range(len(tokens))])


def _as_arrays(tokens: list[int], parents: list[int]) -> Any:
    return Proposal(np.array(tokens, np.int64), np.array(parents, np.int16))  # type: ignore[arg-type]


def _as_generators(tokens: list[int], parents: list[int]) -> Any:
    return Proposal((t for t in tokens), iter(parents))  # type: ignore[arg-type]


def _in_tuples(tokens: list[int], parents: list[int]) -> Any:
    return Proposal(tuple(tokens), tuple(parents))


HANDED: tuple[Callable[[list[int], list[int]], Any], ...] = (
    _plainly,
    _with_log_probs,
    _as_arrays,
    _as_generators,
    _in_tuples,
)
