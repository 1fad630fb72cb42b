"""Proposals of an adapter that knows what plain decoding will say, and how much of it to give away.

Shapes are the same in all regimes: chains, and trees that grow at random places, in a random node
order, so that accepted paths are sometimes a prefix of it and sometimes not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from soak_plain import PlainText

from specla.adapters.base import Adapter
from specla.core.proposal import Proposal, SequenceView

REGIMES = ("reject", "random", "full")
"""Nothing right; a path that is right with a probability; a whole chain or deepest path right."""

Shape = tuple[list[int], list[int]]
"""Parents (-1 for the root) and depths (1 below the root) of the candidates."""


def draw_shape(rng: Random, candidates: int, max_depth: int) -> Shape:
    """A chain, or a tree: bushy, slender or anything between."""
    if rng.random() < 0.3:
        length = min(candidates, max_depth)
        return list(range(-1, length - 1)), list(range(1, length + 1))
    parents: list[int] = []
    depths: list[int] = []
    reach = rng.choice([2, 3, 6, candidates])
    for _ in range(candidates):
        # nodes that may still have children; only the latest of them in a slender tree
        open_nodes = [-1, *(i for i, depth in enumerate(depths) if depth < max_depth)]
        parent = rng.choice(open_nodes[-reach:])
        parents.append(parent)
        depths.append(depths[parent] + 1 if parent >= 0 else 1)
    return parents, depths


def draw_right(rng: Random, regime: str, shape: Shape) -> set[int]:
    """The candidates of one path that carry the true token."""
    parents, depths = shape
    if regime == "reject" or not parents:
        return set()
    if regime == "full":
        end = max(range(len(parents)), key=lambda i: (depths[i], rng.random()))
        return set(_path(parents, end))
    path = _path(parents, rng.randrange(len(parents)))
    probability = rng.choice([0.5, 0.75, 0.9])
    return {node for node in path if rng.random() < probability}


def _path(parents: Sequence[int], end: int) -> list[int]:
    path = [end]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path


def fill(
    rng: Random,
    shape: Shape,
    right: set[int],
    truth: Callable[[int], int],
    wrong: Callable[[set[int]], int],
) -> tuple[list[int], tuple[int, ...]]:
    """Tokens of the candidates, and those candidates that must be accepted.

    truth: the true token so many levels below the root.  wrong: a token that is none of these.
    """
    tokens: list[int] = []
    accepted: list[int] = []
    taken: dict[int, set[int]] = {}
    for node, (parent, depth) in enumerate(zip(*shape, strict=True)):
        siblings = taken.setdefault(parent, set())
        live = parent == -1 or parent in accepted
        if live and node in right:
            token = truth(depth)
            accepted.append(node)
        elif not live and rng.random() < 0.3 and truth(depth) not in siblings:
            # the right token below a wrong one is as wrong
            token = truth(depth)
        else:
            token = wrong(siblings | {truth(depth)} if live else siblings)
        siblings.add(token)
        tokens.append(token)
    return tokens, tuple(accepted)


class SoakAdapter(Adapter):
    """Proposes for one regime. accepted: what must become of the last proposal.

    Half of the wrong tokens are taken from the latest text, as a draft would propose them to a
    model that repeats itself.
    """

    def __init__(self, plain: PlainText, regime: str, rng: Random, vocab_size: int) -> None:
        super().__init__()
        self._plain, self._regime, self._rng = plain, regime, rng
        self._vocab_size = vocab_size
        self.forget()

    def forget(self) -> None:
        """Nothing is proposed, as in a round without room for candidates."""
        self.accepted: tuple[int, ...] = ()

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One tree of 0..budget candidates per view."""
        return [self._proposal(view) for view in views]

    def _proposal(self, view: SequenceView) -> Proposal:
        shape = draw_shape(self._rng, self._rng.randint(0, view.budget), view.max_depth)
        right = draw_right(self._rng, self._regime, shape)
        start, recent = len(view.tokens) - 1, list(view.tokens[-16:])

        def wrong(excluded: set[int]) -> int:
            candidates = [token for token in recent if token not in excluded]
            if candidates and self._rng.random() < 0.5:
                return self._rng.choice(candidates)
            while (token := self._rng.randrange(self._vocab_size)) in excluded:
                pass
            return token

        def truth(depth: int) -> int:
            return self._plain.token(start + depth)

        tokens, self.accepted = fill(self._rng, shape, right, truth, wrong)
        return Proposal(tokens, shape[0])
