"""Everything that can be done to sequences, as plain values: see specla/fuzz/world.py."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.errors import LifecycleError, TopologyError
from specla.fuzz.demand import demand_refusal
from specla.fuzz.lifecycle.driver import Driver, Tokens
from specla.fuzz.lifecycle.texts import Failure, Saved, Text
from specla.testing.forests import naive_path

Share = tuple[int, Tokens]
"""Number of a sequence, and tokens for it."""
Grown = tuple[int, Tokens, Tokens]
"""Number of a sequence, and a tree for it: tokens and parents."""


def _text(driver: Driver, number: int) -> Text | None:
    return driver.texts[number % len(driver.texts)] if driver.texts else None


def _saved(driver: Driver, number: int) -> Saved | None:
    return driver.saved[number % len(driver.saved)] if driver.saved else None


def _room(driver: Driver, text: Text) -> int:
    return driver.target.options.context - len(text.tokens)


def _fits(driver: Driver, text: Text, tree: Tree) -> bool:
    return max(tree.depths) < _room(driver, text)


def _trees(driver: Driver, items: tuple[Grown, ...]) -> list[tuple[Text, Tree]]:
    """Each sequence at most once, and only with a tree that fits."""
    found: dict[int, tuple[Text, Tree]] = {}
    for number, tokens, parents in items:
        text, tree = _text(driver, number), Tree.build(tokens, parents)
        if text is not None and _fits(driver, text, tree):
            found.setdefault(id(text), (text, tree))
    return list(found.values())


def _path(tree: Tree, end: int) -> tuple[int, ...]:
    return tuple(naive_path(tree, end % len(tree)))


@dataclass(frozen=True)
class Open:
    """A fresh sequence, into a slot that was used before or not."""

    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        driver.open(self.failure)


@dataclass(frozen=True)
class Close:
    """The end of a sequence; its slot and pages go to the next one."""

    text: int

    def play(self, driver: Driver) -> None:
        if (text := _text(driver, self.text)) is not None:
            driver.close(text)
            driver.check_free_slots()


@dataclass(frozen=True)
class Prefill:
    """Committed tokens, for several sequences in one step."""

    shares: tuple[Share, ...]
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        found: dict[int, tuple[Text, Tokens]] = {}
        left = driver.target.options.chunk
        for number, tokens in self.shares:
            text = _text(driver, number)
            if text is None or id(text) in found:
                continue
            piece = tokens[: min(left, _room(driver, text))]
            left -= len(piece)
            if piece:
                found[id(text)] = (text, piece)
        if found:
            driver.prefill(list(found.values()), self.failure)


@dataclass(frozen=True)
class Verify:
    """A tree for each of several sequences; also where an earlier verify is undecided."""

    items: tuple[Grown, ...]
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        if items := _trees(driver, self.items):
            driver.verify(items, self.failure)


@dataclass(frozen=True)
class Commit:
    """Accept the path to node ``end`` (modulo the tree's size)."""

    text: int
    end: int
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        if (text := _text(driver, self.text)) is not None:
            driver.commit(text, _path(text.tree, self.end) if text.tree else (0,), self.failure)


@dataclass(frozen=True)
class CommitNonsense:
    """A path that is none is refused, and nothing changes."""

    text: int
    path: tuple[int, ...]

    def play(self, driver: Driver) -> None:
        text = _text(driver, self.text)
        if text is None or (text.tree is not None and _is_path(text.tree, self.path)):
            return
        error = TopologyError if text.phase is Phase.VERIFIED else LifecycleError
        demand_refusal(error, lambda: driver.target.commit(text.sequence, self.path))
        driver.check_phases()


def _is_path(tree: Tree, path: tuple[int, ...]) -> bool:
    return bool(path) and 0 <= path[-1] < len(tree) and _path(tree, path[-1]) == path


@dataclass(frozen=True)
class Round:
    """As an engine does it: verify a batch, then accept a path in each, in one commit.

    ends: the last node of each path.  check: compare all state afterwards.
    """

    items: tuple[Grown, ...]
    ends: tuple[int, ...]
    check: bool = False

    def play(self, driver: Driver) -> None:
        items = [(text, tree) for text, tree in _trees(driver, self.items) if not text.broken]
        if not items or not driver.verify(items):
            return
        driver.commit_all(
            [
                (text, _path(tree, self.ends[i % len(self.ends)]))
                for i, (text, tree) in enumerate(items)
            ]
        )
        for text, _ in items if self.check else ():
            driver.check_state(text)


@dataclass(frozen=True)
class PlainSteps:
    """Rounds without a draft: lone roots, each accepted."""

    text: int
    tokens: Tokens

    def play(self, driver: Driver) -> None:
        text = _text(driver, self.text)
        for token in self.tokens if text is not None else ():
            if text is not None and not text.broken and _room(driver, text):
                driver.verify([(text, Tree.lone(token))])
                driver.commit(text, (0,))


@dataclass(frozen=True)
class Discard:
    """Drop an undecided verify."""

    text: int

    def play(self, driver: Driver) -> None:
        if (text := _text(driver, self.text)) is not None:
            driver.discard(text)


@dataclass(frozen=True)
class Flush:
    """Fold what is pending."""

    text: int
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        if (text := _text(driver, self.text)) is not None:
            driver.flush(text, self.failure)


@dataclass(frozen=True)
class Fork:
    """An independent twin."""

    text: int
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        if (text := _text(driver, self.text)) is not None:
            driver.fork(text, self.failure)


@dataclass(frozen=True)
class Snapshot:
    """A copy to come back to; two are kept at most."""

    text: int
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        text = _text(driver, self.text)
        if text is not None and len(driver.saved) < 2:
            driver.snapshot(text, self.failure)


@dataclass(frozen=True)
class Restore:
    """Bring any sequence to a snapshot: its own, another one, a broken one."""

    text: int
    saved: int
    failure: Failure | None = None

    def play(self, driver: Driver) -> None:
        text, saved = _text(driver, self.text), _saved(driver, self.saved)
        if text is not None and saved is not None:
            driver.restore(text, saved, self.failure)


@dataclass(frozen=True)
class Release:
    """Give a snapshot back."""

    saved: int

    def play(self, driver: Driver) -> None:
        if (saved := _saved(driver, self.saved)) is not None:
            driver.release(saved)


@dataclass(frozen=True)
class Check:
    """Compare all state, features and free slots."""

    text: int

    def play(self, driver: Driver) -> None:
        if (text := _text(driver, self.text)) is not None:
            driver.check_features(text)
            driver.check_state(text)
        driver.check_free_slots()


OPERATIONS: tuple[type[Any], ...] = (
    *(Open, Close, Prefill, Verify, Commit, CommitNonsense, Round, PlainSteps, Discard, Flush),
    *(Fork, Snapshot, Restore, Release, Check),
)
