"""Proposals, sound and bad, made from what plain decoding will write.

Every maker says what it proposes and whether that must be verified or refused; the adapter under
test is as hostile as its proposals.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
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

# -- sound trees ---------------------------------------------------------------------------------


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

# -- what must be refused --------------------------------------------------------------------------


def _endless() -> Proposal:
    return Proposal(itertools.count(), itertools.count(-1))  # type: ignore[arg-type]


def _breaks_off() -> Proposal:
    def tokens() -> Iterator[int]:
        yield 1
        raise LookupError("half-way")

    return Proposal(tokens(), [-1])  # type: ignore[arg-type]


def _raise(error: BaseException) -> Any:
    raise error


def _assign(moment: Moment) -> Any:
    moment.view.tokens[-1] = 0  # type: ignore[index]
    return [Proposal()]


def _append(moment: Moment) -> Any:
    moment.view.tokens.append(0)  # type: ignore[attr-defined]
    return [Proposal()]


def _more_budget(moment: Moment) -> Any:
    object.__setattr__(moment.view, "budget", 10_000)
    object.__setattr__(moment.view, "max_depth", 10_000)
    return _over_budget(moment, 3)


def _over_budget(moment: Moment, by: int = 1) -> Any:
    count = moment.view.budget + by if moment.view.budget < 1000 else 400
    return [Proposal.chain(moment.future(2) + [0] * (count - 2))]


def _features_beyond(moment: Moment) -> Any:
    moment.view.features(0, len(moment.view.tokens) + 3)
    return [Proposal()]


def _write_features(moment: Moment) -> Any:
    moment.view.features(0, len(moment.view.tokens) - 1)[...] = 0
    return None


def _one(token: Any, parent: Any = -1, log_probs: Any = None) -> Callable[[Moment], Any]:
    return lambda moment: [Proposal([token], [parent], log_probs)]


def _twins(moment: Moment) -> Any:
    right = moment.future(1) * 2
    return [Proposal(right, [-1, -1])] if moment.view.budget > 1 else None


BAD: dict[str, Callable[[Moment], Any]] = {
    "nothing at all": lambda moment: None,
    "no proposal": lambda moment: [],
    "two proposals": lambda moment: [Proposal(), Proposal()],
    "a proposal without a list": lambda moment: Proposal(moment.future(1), [-1]),
    "text": lambda moment: ["abc"],
    "a number": lambda moment: [7],
    "parent after child": lambda moment: [Proposal(moment.future(2), [1, -1])],
    "own parent": lambda moment: [Proposal(moment.future(1), [0])],
    "cycle": lambda moment: [Proposal(moment.future(2), [1, 0])],
    "parent -2": lambda moment: [Proposal(moment.future(1), [-2])],
    "huge parent": lambda moment: [Proposal(moment.future(1), [2**70])],
    "float parent": lambda moment: [Proposal(moment.future(1), [-1.0])],  # type: ignore[list-item]
    "NaN parent": lambda moment: [Proposal(moment.future(1), [float("nan")])],  # type: ignore[list-item]
    "text as parent": lambda moment: [Proposal(moment.future(1), ["-1"])],  # type: ignore[list-item]
    "twins": _twins,
    "token beyond the vocabulary": lambda moment: [Proposal([moment.vocab_size], [-1])],
    "negative token": _one(-1),
    "huge token": _one(2**80),
    "truth value": _one(True),
    "NumPy truth value": _one(np.bool_(True)),
    "NumPy float": _one(np.float32(1.0)),
    "text as token": _one("1"),
    "no parents": lambda moment: [Proposal(moment.future(1), [])],
    "more parents": lambda moment: [Proposal([], [-1])],
    "NaN log-probability": _one(1, -1, [float("nan")]),
    "positive log-probability": _one(1, -1, [0.5]),
    "log-probabilities missing": _one(1, -1, []),
    "too many": _over_budget,
    "endless": lambda moment: [_endless()],
    "breaks off": lambda moment: [_breaks_off()],
    "raises": lambda moment: _raise(RuntimeError("no")),
    "raises GeneratorExit": lambda moment: _raise(GeneratorExit()),
    "raises StopIteration": lambda moment: _raise(StopIteration()),
    "raises MemoryError": lambda moment: _raise(MemoryError()),
    "assigns a token": _assign,
    "appends a token": _append,
    "takes more budget": _more_budget,
    "features beyond the state": _features_beyond,
    "writes features": _write_features,
}
