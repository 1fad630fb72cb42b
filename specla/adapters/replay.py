"""Replays a recorded continuation with a chosen error rate and branching.

Not a draft but a tool: it makes any accept length at will, for measuring speed and for tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specla.adapters.base import Adapter, TargetInfo
from specla.adapters.checks import check_integers, check_probability
from specla.core.proposal import Proposal, SequenceView
from specla.core.topology import MAX_NODES, MAX_TOKEN, as_integers
from specla.errors import LifecycleError, OptionError, TopologyError
from specla.regular_file import open_regular

MAX_BRANCH = 64
MAX_SIDE_DEPTH = 64


@dataclass(frozen=True)
class ReplayOptions:
    """Options of the replay adapter.

    path: JSON file, a list of token ids or ``{"tokens": [...]}``: what follows the prompt.
    error: probability that a node of the spine carries a wrong token, independently for each
    position of the recording.  accept: tokens that a round commits at most, its bonus token
    included: the spine is wrong from its ``accept``-th candidate on; 0 for no such end.
    branch: children of each spine node, the recorded token and ``branch - 1`` wrong ones, the
    recorded one at a random place among them.  side_depth: length of the junk chain below each
    wrong sibling.  depth: levels of the spine, 0 for as many as the budget allows.
    seed: selects the errors, places and junk.
    """

    path: str
    error: float = 0.0
    accept: int = 0
    branch: int = 1
    side_depth: int = 0
    depth: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        check_probability("replay", self, "error")
        check_integers(
            "replay",
            self,
            accept=(0, MAX_NODES),
            branch=(1, MAX_BRANCH),
            side_depth=(0, MAX_SIDE_DEPTH),
            depth=(0, MAX_NODES),
            seed=(0, 2**64 - 1),
        )


class ReplayAdapter(Adapter):
    """Proposes what the recording has at the sequence's position, whatever the text so far says.

    A proposal depends on the options, the position and the limits of the round only. The tree
    grows level by level, each level complete before the next (recorded token, wrong siblings, their
    chains), until the budget, ``max_depth``, ``depth`` or the recording ends; a wrong spine token
    has the recorded tokens of the later positions below it. Carries no log-probabilities.
    """

    Options = ReplayOptions

    def __init__(self, options: Any, recording: Iterable[int] | None = None) -> None:
        """Without a recording at hand, reads the file ``options.path``.

        Raises OptionError, one line, when the file is missing, no JSON or no recording.
        """
        super().__init__(options)
        if recording is None:
            self._recording = _read(options.path)
        else:
            self._recording = _recording(recording, "a recording")
        self._vocab_size = 0

    @classmethod
    def of(
        cls,
        tokens: Iterable[int],
        *,
        error: float = 0.0,
        accept: int = 0,
        branch: int = 1,
        side_depth: int = 0,
        depth: int = 0,
        seed: int = 0,
    ) -> ReplayAdapter:
        """The adapter for a recording that is at hand, without a file."""
        return cls(ReplayOptions("", error, accept, branch, side_depth, depth, seed), tokens)

    def bind(self, target: TargetInfo) -> None:
        """Raises OptionError when the recording or ``branch`` needs a larger vocabulary."""
        size = target.vocab_size
        for i, token in enumerate(self._recording):
            if token >= size:
                raise OptionError(
                    f"adapter 'replay': tokens[{i}] of the recording is {token}; the target's "
                    f"token ids are 0..{size - 1}; record it with this target"
                )
        if self.options.branch >= size:
            raise OptionError(
                f"adapter 'replay': option branch is {self.options.branch}; with this target's "
                f"{size} token ids it must be less than {size}"
            )
        self._vocab_size = size

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One proposal per view; empty beyond the end of the recording."""
        if not self._vocab_size:
            raise LifecycleError("adapter 'replay' proposes only after bind(); bind a target")
        return [self._tree(view) for view in views]

    def _tree(self, view: SequenceView) -> Proposal:
        start = len(view.tokens) - view.prompt_length
        levels = min(len(self._recording) - start, view.max_depth, view.budget)
        if self.options.depth:
            levels = min(levels, self.options.depth)
        if levels <= 0:
            return Proposal()
        accept = self.options.accept
        if self.options.branch == 1 and not self.options.error and not accept:
            return Proposal.chain(self._recording[start : start + levels])
        tree = _Builder(view.budget)
        spine = -1
        for depth, draws in zip(range(levels), self._draws(start), strict=False):
            if not tree.room:
                break
            side_depth = min(self.options.side_depth, view.max_depth - depth - 1)
            error = 1.0 if accept and depth >= accept - 1 else self.options.error
            spine = self._level(tree, spine, start + depth, draws, side_depth, error)
        return Proposal(tree.tokens, tree.parents)

    def _level(
        self,
        tree: _Builder,
        spine: int,
        position: int,
        draws: list[int],
        side_depth: int,
        error: float,
    ) -> int:
        """Add the children of a spine node and their junk; returns the next spine node."""
        branch = self.options.branch
        coin, place, heads, chains = draws[0], draws[1], draws[2 : 2 + branch], draws[2 + branch :]
        right = self._recording[position]
        taken = [right]
        for draw in heads:
            taken.append(self._junk(draw, taken))
        wrong = taken[1:]
        token = wrong.pop() if (coin >> 11) * 2.0**-53 < error else right
        children = wrong[: min(branch, tree.room) - 1]
        at = _scale(place, len(children) + 1)
        children.insert(at, token)
        nodes = [tree.add(child, spine) for child in children]
        spine = nodes.pop(at)
        for i, node in enumerate(nodes):
            first = i * self.options.side_depth
            self._chain(tree, node, position + 1, chains[first : first + side_depth])
        return spine

    def _chain(self, tree: _Builder, node: int, position: int, draws: list[int]) -> None:
        for i, draw in enumerate(draws[: tree.room], start=position):
            node = tree.add(self._junk(draw, self._recording[i : i + 1]), node)

    def _junk(self, draw: int, excluded: Sequence[int]) -> int:
        """A token of the vocabulary that is not excluded, all with the same probability."""
        token = _scale(draw, self._vocab_size - len(excluded))
        for other in sorted(excluded):
            token += token >= other
        return token

    def _draws(self, start: int) -> Iterator[list[int]]:
        """64-bit numbers of one level after the other, keyed by seed and position.

        A level has the same ones whatever round it is proposed in: coin, place, a wrong token per
        child, junk of the chains.
        """
        branch, side_depth = self.options.branch, self.options.side_depth
        # the generator makes 4 numbers per count, so a level takes a multiple of 4
        counts = -(-(2 + branch + (branch - 1) * side_depth) // 4)
        key = np.array([self.options.seed, 0], dtype=np.uint64)
        generator = np.random.Philox(counter=start * counts, key=key)
        while True:
            yield generator.random_raw(counts * 4).tolist()


class _Builder:
    """A proposal in the making. room: how many more candidates the budget allows."""

    def __init__(self, budget: int) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.room = budget

    def add(self, token: int, parent: int) -> int:
        self.tokens.append(token)
        self.parents.append(parent)
        self.room -= 1
        return len(self.tokens) - 1


def _scale(draw: int, count: int) -> int:
    """A 64-bit number as one of 0..count - 1."""
    return (draw * count) >> 64


def _read(path: str) -> tuple[int, ...]:
    what = f"recording {path!r}"
    try:
        with open_regular(path) as file:
            content = json.loads(file.read().decode("utf-8"))
    except OSError as error:
        reason = error.strerror or "it can't be read"
        raise OptionError(f"adapter 'replay': {what}: {reason}; give --adapter-opt path=") from None
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise OptionError(f"adapter 'replay': {what} is not a JSON file: {reason}") from None
    if isinstance(content, dict):
        content = content.get("tokens")
    if not isinstance(content, list):
        raise OptionError(
            f"adapter 'replay': {what} holds no recording; it must be a list of token ids "
            'or {"tokens": [...]}'
        )
    return _recording(content, what)


def _recording(tokens: Iterable[object], what: str) -> tuple[int, ...]:
    try:
        recording = as_integers(tokens, "tokens")
    except TopologyError as error:
        raise OptionError(f"adapter 'replay': {what}: {error}") from None
    for i, token in enumerate(recording):
        if not 0 <= token <= MAX_TOKEN:
            raise OptionError(
                f"adapter 'replay': {what}: tokens[{i}] is {token}; token ids are 0..{MAX_TOKEN}"
            )
    return recording
