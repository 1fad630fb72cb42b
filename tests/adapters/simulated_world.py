"""A world without a model: what a step costs and which candidates are right, both known exactly.

A draft states probabilities of the next tokens of each path; the world says how true they are.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from adapter_views import view

from specla.adapters.base import Adapter
from specla.core.proposal import Outcome, Proposal, SequenceView


@dataclass
class Clock:
    """Seconds that pass only when somebody says so."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class World:
    """cost: seconds of a step by rows.  truth: chance of a candidate that the draft gives the
    probability p, given its parent, by text position.  draft_seconds: per call and per candidate.
    noise: spread of a step's time.  spike: chance of a step that takes five times as long.
    silent: chance that the draft has nothing to say.  depth_seconds: of the draft, per depth.
    """

    cost: Callable[[int], float]
    truth: Callable[[float, int], float]
    draft_seconds: tuple[float, float] = (0.0, 0.0)
    top: tuple[float, ...] = (0.75, 0.12, 0.05)
    noise: float = 0.05
    spike: float = 0.01
    silent: float = 0.0
    stated: bool = True
    depth_seconds: float = 0.0


class SimulatedDraft(Adapter):
    """A tree like ddtree's, of a draft whose confidence differs from place to place."""

    def __init__(self, world: World, clock: Clock, seed: int) -> None:
        super().__init__()
        self.world, self.clock = world, clock
        self.random = random.Random(seed)
        self.calls = 0
        self.full = Proposal()
        self.right: list[int] = []
        self.told: list[Outcome] = []

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        (seen,) = views
        self.calls += 1
        self.full = Proposal()
        self.right = []
        self.depth = 0
        if self.random.random() >= self.world.silent:
            self._draw(seen)
        per_call, per_candidate = self.world.draft_seconds
        self.clock.now += per_call + per_candidate * len(self.full.tokens)
        self.clock.now += self.world.depth_seconds * self.depth
        if not self.world.stated:
            return [Proposal(self.full.tokens, self.full.parents)]
        return [self.full]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.told += outcomes

    def _draw(self, seen: SequenceView) -> None:
        world, rng = self.world, self.random
        tokens: list[int] = []
        parents: list[int] = []
        log_probs: list[float] = []
        depths: list[int] = []
        heap: list[tuple[float, int, int, float]] = []
        pushed = 0

        def expand(parent: int, score: float) -> None:
            nonlocal pushed
            sharp = rng.choice((0.5, 1.0, 1.3))
            for rank, p in enumerate(world.top):
                p = min(p * sharp, 0.97) if rank == 0 else p * (2.0 - sharp)
                heapq.heappush(heap, (-score - math.log(p), pushed, parent, math.log(p)))
                pushed += 1

        # the right path is drawn as the tree grows: at most one child of a right node is right
        open_chance = {-1: 1.0}
        right = {-1}
        expand(-1, 0.0)
        while heap and len(tokens) < seen.budget:
            negative, number, parent, log_prob = heapq.heappop(heap)
            node = len(tokens)
            tokens.append(number % 30000)
            parents.append(parent)
            log_probs.append(log_prob)
            if parent in right:
                chance = world.truth(math.exp(log_prob), len(seen.tokens))
                left = open_chance[parent]
                if left > 0 and rng.random() < min(chance / left, 1.0):
                    right.add(node)
                    self.right.append(node)
                    open_chance[node] = 1.0
                    open_chance[parent] = 0.0
                else:
                    open_chance[parent] = max(left - chance, 0.0)
            depths.append(depths[parent] + 1 if parent >= 0 else 1)
            if depths[node] < seen.max_depth:
                expand(node, -negative)
        self.depth = max(depths, default=0)
        self.full = Proposal(tokens, parents, log_probs)


@dataclass
class Run:
    """What a run took. speculated: rounds with candidates."""

    seconds: float
    rounds: int = 0
    speculated: int = 0
    sizes: list[int] = field(default_factory=list)


def simulate(
    adapter: Adapter,
    draft: SimulatedDraft,
    count: int,
    *,
    budget: int = 22,
    seed: int = 0,
    key: int = 0,
) -> Run:
    """Decode ``count`` tokens with ``adapter``, which asks ``draft``."""
    world, clock = draft.world, draft.clock
    rng = random.Random(seed)
    text = [1]
    run = Run(clock.now)
    adapter.open(view(text, key=key))
    while len(text) <= count:
        room = count - len(text)
        seen = view(text, prompt_length=1, budget=budget if room else 0, max_depth=room, key=key)
        (proposal,) = adapter.propose([seen]) if room else (Proposal(),)
        rows = len(proposal.tokens) + 1
        seconds = world.cost(rows) * max(rng.gauss(1.0, world.noise), 0.5)
        if rng.random() < world.spike:
            seconds *= 5.0
        clock.now += seconds
        right = {draft.full.tokens[i] for i in draft.right}
        accepted = tuple(i for i, token in enumerate(proposal.tokens) if token in right)
        text += [*(proposal.tokens[i] for i in accepted), 0]
        outcome = Outcome(accepted, 0, None, rows, seconds)
        adapter.observe([view(text, prompt_length=1, budget=0, max_depth=0, key=key)], [outcome])
        run.rounds += 1
        run.speculated += rows > 1
        run.sizes.append(rows - 1)
    adapter.close(view(text, key=key))
    run.seconds = clock.now - run.seconds
    return run


class Fixed(Adapter):
    """The ``nodes`` best candidates of a draft, every round, none deeper than ``depth``; without
    any: plain decoding."""

    def __init__(self, draft: SimulatedDraft, nodes: int, depth: int = 64) -> None:
        super().__init__()
        self.draft, self.nodes, self.depth = draft, nodes, depth

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        if not self.nodes:
            return [Proposal() for _ in views]
        (seen,) = views
        (full,) = self.draft.propose(
            [view(seen.tokens, budget=min(self.nodes, seen.budget), max_depth=self.depth)]
        )
        return [full]


def best_fixed(world: World, count: int, seeds: Sequence[int], nodes: Sequence[int]) -> float:
    """Seconds that the best fixed number of candidates takes, on average."""
    return min(sum(_fixed(world, count, seed, n) for seed in seeds) / len(seeds) for n in nodes)


def _fixed(world: World, count: int, seed: int, nodes: int) -> float:
    draft = SimulatedDraft(world, Clock(), seed)
    return simulate(Fixed(draft, nodes), draft, count, seed=seed).seconds
