"""How a round's candidates are verified, and how the state comes to hold the accepted ones.

Three ways to the same text, logits and state, byte for byte:

* ``TreeVerifier`` (the default): one pass over the tree, then a commit that swaps banks.
* ``ReplayVerifier``: one pass over the tree; then the state of before is restored from a snapshot
  and the accepted path runs again as a prefill. It shares no rollback with the first one.
* ``SequentialVerifier``: one node per pass along the accepted path; never more than one row.

The last two are for comparison and for finding faults, not for speed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specla.core.acceptance import Acceptance, Choose, cut, walk
from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.models.qwen35.target import Qwen35Target, Verified
from specla.models.sequence import Sequence
from specla.models.store import Snapshot
from specla.stats import GenerationStats

Choices = Callable[[Verified], Choose]
"""From a pass to the target's choice at its rows."""


@dataclass(frozen=True)
class Decision:
    """The target's choice after one node of the path.

    node: in the round's tree.  token: chosen after it.  logits: float32 [vocab] that it was chosen
    from, if they were asked for.
    """

    node: int
    token: int
    logits: npt.NDArray[np.float32] | None


Decisions = Generator[Decision, None, None]


class Verifier(ABC):
    """One sequence's rounds. rows: nodes that the running round has verified so far.

    A round is :meth:`decisions`, as far as they are wanted, and then :meth:`settle`, always.
    """

    def __init__(self, target: Qwen35Target, sequence: Sequence, stats: GenerationStats) -> None:
        self.target = target
        self.sequence = sequence
        self.stats = stats
        self.rows = 0

    @abstractmethod
    def decisions(self, tree: Tree, choices: Choices, *, logits: bool) -> Decisions:
        """The choices along the accepted path, root first; the last one's token is no candidate."""

    @abstractmethod
    def settle(self, count: int) -> None:
        """Let the first ``count`` decisions count: their nodes go into the state, no others."""

    def mend(self) -> None:
        """Put in order what an interrupt left, before anything else is done with the sequence.

        The state then holds whole tokens (its length says how many) or is BROKEN for good.
        """
        if self.sequence.phase is Phase.VERIFIED:
            self.target.discard(self.sequence)

    def close(self) -> None:
        """Give back what is held beside the sequence."""

    def _verify(self, tree: Tree) -> Verified:
        with self.stats.timed("verify"):
            verified = self.target.verify([(self.sequence, tree)])
        self.rows += len(tree)
        return verified


class TreeVerifier(Verifier):
    """All nodes in one pass; accepted ones are committed by a swap of banks.

    fused: their factors are folded by the next round's verify; False: by a pass of their own,
    right after the commit.
    """

    fused = True

    def decisions(self, tree: Tree, choices: Choices, *, logits: bool) -> Decisions:
        self.rows, self._tree, self._accepted = 0, tree, Acceptance((0,), -1)
        verified = self._verify(tree)
        with self.stats.timed("choose"):
            self._accepted = walk(tree, choices(verified))
        path = self._accepted.path
        # fetched now: what is verified is valid only until the target's next step
        rows = [self.target.logits(verified, node) for node in path] if logits else None
        for i, token in enumerate(self._accepted.emitted(tree)):
            yield Decision(path[i], token, rows[i] if rows is not None else None)

    def settle(self, count: int) -> None:
        if count == 0:
            self.mend()
            return
        with self.stats.timed("commit"):
            self._commit(cut(self._accepted, self._tree, count).path)

    def _commit(self, path: tuple[int, ...]) -> None:
        self.target.commit(self.sequence, path)
        if not self.fused:
            self.target.flush(self.sequence)


class UnfusedTreeVerifier(TreeVerifier):
    """A TreeVerifier that folds right after each commit."""

    fused = False


class ReplayVerifier(TreeVerifier):
    """All nodes in one pass; the state of before is then restored and takes the path as a prefill.

    A failure while it does so costs the round, not the sequence: the snapshot is still there.
    """

    _snapshot: Snapshot | None = None

    def decisions(self, tree: Tree, choices: Choices, *, logits: bool) -> Decisions:
        with self.stats.timed("verify"):
            self.mend()
            self._snapshot = self.target.snapshot(self.sequence)
        yield from super().decisions(tree, choices, logits=logits)

    def _commit(self, path: tuple[int, ...]) -> None:
        if self._snapshot is not None:
            self.target.restore(self.sequence, self._snapshot)
        tokens = [self._tree.tokens[node] for node in path]
        chunk = self.target.options.chunk
        for start in range(0, len(tokens), chunk):
            self.target.prefill([(self.sequence, tokens[start : start + chunk])])
        self.close()

    def mend(self) -> None:
        # what is not broken holds whole tokens: a prefill that was cut short between two chunks too
        if self._snapshot is not None and self.sequence.phase is Phase.BROKEN:
            self.target.restore(self.sequence, self._snapshot)
        super().mend()
        self.close()

    def close(self) -> None:
        if self._snapshot is not None:
            self.target.store.release(self._snapshot)
            self._snapshot = None


class SequentialVerifier(Verifier):
    """The root, then the accepted child, and so on: each in a pass of its own.

    A node is committed when the one after it is asked for: by then its token has been emitted.
    """

    def decisions(self, tree: Tree, choices: Choices, *, logits: bool) -> Decisions:
        self.rows, self._start = 0, self.sequence.length
        node: int | None = 0
        accepted: tuple[int, ...] = ()
        while node is not None:
            if accepted:
                with self.stats.timed("commit"):
                    self.target.commit(self.sequence, (0,))
            verified = self._verify(Tree.lone(tree.tokens[node]))
            with self.stats.timed("choose"):
                token = choices(verified)(0, accepted)
            yield Decision(node, token, self.target.logits(verified, 0) if logits else None)
            node = tree.child_with_token(node, token)
            accepted = (*accepted, token)

    def settle(self, count: int) -> None:
        if count and self.sequence.length == self._start + count - 1:
            if self.sequence.phase is Phase.VERIFIED:
                with self.stats.timed("commit"):
                    self.target.commit(self.sequence, (0,))
        else:
            self.mend()
