"""Drives a target through the life of several sequences and checks every claim on the way.

The driver's own idea of a sequence is a list of committed tokens. All it compares with is an
oracle's plain decoding: outputs of every verified row, and the state arrays, byte for byte.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.errors import BrokenSequenceError, CapacityError, LifecycleError
from specla.fuzz.demand import demand, demand_refusal
from specla.fuzz.failing import FOLDS, TRANSFERS, FailingBackend
from specla.fuzz.lifecycle.attempts import Attempts, Outputs
from specla.fuzz.lifecycle.texts import Failure, Saved, Text
from specla.fuzz.plain import Record, difference, same
from specla.models.qwen35.target import Qwen35Target, Verified
from specla.testing.forests import naive_path

Tokens = tuple[int, ...]


class Oracle(Protocol):
    """Plain decoding: what each list of tokens leads to."""

    def after(self, tokens: Tokens) -> Record:
        """State arrays, outputs and features after ``tokens``."""

    def forget(self, keep: list[Tokens]) -> None:
        """Drop what it remembers, but for ``keep``."""


class Driver:
    """target: under test.  outputs: of a pass of it; None: its logits.

    backend: the target's, if it can fail on command; None: nothing fails, and steps are recorded
    where the backend does that.  texts, saved: sequences and snapshots that are open.
    """

    def __init__(self, target: Qwen35Target, plain: Oracle, outputs: Outputs | None = None) -> None:
        self.target, self.plain = target, plain
        made: Any = target.backend
        self.backend: FailingBackend | None = made if isinstance(made, FailingBackend) else None
        self.texts: list[Text] = []
        self.saved: list[Saved] = []
        self.rounds = 0
        self._attempts = Attempts(self.backend, self.texts, outputs or self._logits)

    # -- operations ------------------------------------------------------------------------

    def open(self, failure: Failure | None = None) -> Text | None:
        """A fresh sequence; None when there is no room, or it failed."""
        if len(self.texts) == self.target.options.slots:
            demand_refusal(CapacityError, self.target.open)
            return None
        opened: list[Text] = []

        def attempt() -> None:
            opened.append(Text(self.target.open()))

        if self._attempts.run([], attempt, failure):
            self.texts += opened
        self.check_phases()
        return opened[0] if opened else None

    def close(self, text: Text) -> None:
        """Give it back; a second time is refused."""
        self.target.close(text.sequence)
        self.texts.remove(text)
        demand_refusal(LifecycleError, lambda: self.target.close(text.sequence))
        self.check_phases()

    def prefill(self, items: list[tuple[Text, Tokens]], failure: Failure | None = None) -> bool:
        """Committed tokens for several sequences at once."""
        calls = [(t.sequence, tokens) for t, tokens in items]
        if not all(text.settled for text, _ in items):
            demand_refusal(LifecycleError, lambda: self.target.prefill(calls))
            return False
        batch = [text for text, _ in items]
        if not self._attempts.run(batch, lambda: self.target.prefill(calls, logits=True), failure):
            # a fold that died was the flush before the prefill, a transfer came before any write
            if self._attempts.failed not in (*FOLDS, *TRANSFERS):
                for text in batch:
                    text.broken = True
            self.check_phases()
            return False
        row = 0
        for text, tokens in items:
            text.pending, text.unfolded = 0, frozenset()
            for token in tokens:
                text.tokens += (token,)
                self._check_row(row, text.tokens)
                row += 1
        self.check_phases()
        return True

    def verify(self, items: list[tuple[Text, Tree]], failure: Failure | None = None) -> bool:
        """A tree for each of several sequences; every row's output is compared."""
        calls = [(text.sequence, tree) for text, tree in items]
        if any(text.broken for text, _ in items):
            demand_refusal(BrokenSequenceError, lambda: self.target.verify(calls))
            return False
        done = self._attempts.run([t for t, _ in items], lambda: self.target.verify(calls), failure)
        untouched = not done and self._attempts.failed in TRANSFERS
        for text, tree in items:
            if not untouched:
                text.tree = tree if done else None
            if done:
                demand(not text.unfolded, "a verify that succeeded has not folded every layer")
                text.pending = 0
        self.rounds += done
        self.check_phases()
        if done:
            self._check_trees(items)
        return done

    def commit(self, text: Text, path: tuple[int, ...], failure: Failure | None = None) -> bool:
        """Accept a path of the last verify."""
        if text.phase is not Phase.VERIFIED:
            demand_refusal(LifecycleError, lambda: self.target.commit(text.sequence, path))
            return False
        return self.commit_all([(text, path)], failure)

    def commit_all(
        self, items: list[tuple[Text, tuple[int, ...]]], failure: Failure | None = None
    ) -> bool:
        """Accept a path in each of several verified sequences."""
        batch = [text for text, _ in items]
        calls: list[tuple[Any, object]] = [(text.sequence, path) for text, path in items]
        commit = self.target.store.commit_all
        if not self._attempts.run(batch, lambda: commit(calls), failure):
            for text in batch:
                text.broken = True
            self.check_phases()
            return False
        layers = range(self.target.config.n_gdn_layers)
        for text, path in items:
            if text.tree is not None:
                text.tokens += tuple(text.tree.tokens[node] for node in path)
            text.tree, text.pending = None, len(path)
            text.unfolded = frozenset((kind, i) for kind in ("window", "state") for i in layers)
        self.check_phases()
        return True

    def discard(self, text: Text) -> None:
        """Drop the last verify."""
        if text.phase is not Phase.VERIFIED:
            demand_refusal(LifecycleError, lambda: self.target.discard(text.sequence))
            return
        self.target.discard(text.sequence)
        text.tree = None
        self.check_phases()

    def flush(self, text: Text, failure: Failure | None = None) -> bool:
        """Fold what is pending."""
        if not text.settled:
            demand_refusal(LifecycleError, lambda: self.target.flush(text.sequence))
            return False
        done = self._attempts.run([text], lambda: self.target.flush(text.sequence), failure)
        if done:
            demand(not text.unfolded, "a flush that succeeded has not folded every layer")
            text.pending = 0
        self.check_phases()
        return done

    def fork(self, text: Text, failure: Failure | None = None) -> Text | None:
        """An independent twin; None when it is refused or fails."""
        if not text.settled:
            demand_refusal(LifecycleError, lambda: self.target.fork(text.sequence))
            return None
        if len(self.texts) == self.target.options.slots:
            demand_refusal(CapacityError, lambda: self.target.fork(text.sequence))
            return None
        twins: list[Text] = []

        def attempt() -> None:
            twins.append(Text(self.target.fork(text.sequence), text.tokens))

        if self._attempts.run([], attempt, failure):
            twins[0].pending, twins[0].unfolded = text.pending, text.unfolded
            self.texts += twins
        self.check_phases()
        return twins[0] if twins else None

    def snapshot(self, text: Text, failure: Failure | None = None) -> Saved | None:
        """An exact copy; None when it is refused or fails."""
        if not text.settled:
            demand_refusal(LifecycleError, lambda: self.target.snapshot(text.sequence))
            return None
        made: list[Saved] = []

        def attempt() -> None:
            snapshot = self.target.snapshot(text.sequence)
            made.append(Saved(snapshot, text.tokens, text.pending, text.unfolded))

        self._attempts.run([], attempt, failure)
        self.saved += made
        return made[0] if made else None

    def restore(self, text: Text, saved: Saved, failure: Failure | None = None) -> bool:
        """Bring a sequence, its own or another one, to a snapshot."""
        restore = self.target.restore
        done = self._attempts.run([], lambda: restore(text.sequence, saved.snapshot), failure)
        if done:
            text.tokens, text.tree, text.broken = saved.tokens, None, False
            text.pending, text.unfolded = saved.pending, saved.unfolded
        else:
            text.broken = True
        self.check_phases()
        return done

    def release(self, saved: Saved) -> None:
        """Give a snapshot back; a restore from it is refused."""
        self.target.store.release(saved.snapshot)
        self.saved.remove(saved)
        if self.texts:
            sequence, restore = self.texts[0].sequence, self.target.restore
            demand_refusal(LifecycleError, lambda: restore(sequence, saved.snapshot))

    def close_all(self) -> None:
        """Give everything back and look for pages that leaked."""
        for text in list(self.texts):
            self.close(text)
        for saved in list(self.saved):
            self.release(saved)
        pool = self.target.store.pages.pool
        demand(pool.free == pool.n_pages, f"{pool.n_pages - pool.free} pages leaked")

    def finish(self) -> None:
        """The last checks; then give everything back."""
        for text in list(self.texts):
            self.check_state(text)
        self.close_all()

    # -- checks ----------------------------------------------------------------------------

    def check_phases(self) -> None:
        """Every sequence says of itself what the driver knows."""
        for text in self.texts:
            sequence, slot = text.sequence, text.sequence.slot
            demand(sequence.phase is text.phase, f"slot {slot}: {sequence.phase}, not {text.phase}")
            known = len(text.tokens)
            demand(sequence.length == known, f"slot {slot}: {sequence.length} long, not {known}")
            if text.phase is Phase.PENDING:
                told = sequence.ledger.pending_count
                demand(told == text.pending, f"slot {slot}: {told} pending, not {text.pending}")

    def check_state(self, text: Text) -> None:
        """State arrays of a copy equal plain decoding's; the sequence itself stays as it is."""
        if not text.settled:
            return
        if len(self.texts) < self.target.options.slots:
            twin = self.fork(text)
            demand(twin is not None, "a fork was refused")
            if twin is not None:
                self._compare(twin)
                self.close(twin)
            return
        saved = self.snapshot(text)
        demand(saved is not None, "a snapshot was refused")
        if saved is not None:
            self._compare(text)
            self.restore(text, saved)
            self.release(saved)

    def check_features(self, text: Text) -> None:
        """Captured features of all committed positions."""
        wanted = self.plain.after(text.tokens).features
        if wanted is None or not text.settled:
            return
        found = self.target.features(text.sequence, 0, len(text.tokens))
        demand(same(self.target.backend.download(found), wanted), f"features of {text.tokens}")

    def check_free_slots(self) -> None:
        """Nobody wrote to a slot that belongs to nobody: it is full of NaN, or of zeros where an
        opening failed."""
        backend, pool = self.target.backend, self.target.store.recurrent
        taken = {text.sequence.slot for text in self.texts}
        for slot in set(range(self.target.options.slots)) - taken:
            for name in ("state", "window", "key", "delta", "decay", "inputs"):
                array = backend.download(backend.view(getattr(pool, name), slot))
                untouched = np.isnan(array).all() or not array.any()
                demand(bool(untouched), f"free slot {slot}: {name} was written")

    def _logits(self, verified: Verified) -> np.ndarray:
        return self.target.backend.download(verified.logits)

    def _compare(self, text: Text) -> None:
        self.check_features(text)
        found = {}

        def attempt() -> None:
            found.update(self.target.state_arrays(text.sequence))

        self._attempts.run([text], attempt, None)
        text.pending, text.unfolded = 0, frozenset()
        differs = difference(found, self.plain.after(text.tokens).arrays)
        demand(differs == "", f"state after {text.tokens}: {differs}")

    def _check_trees(self, items: list[tuple[Text, Tree]]) -> None:
        row = 0
        for text, tree in items:
            for node in range(len(tree)):
                path = tuple(tree.tokens[n] for n in naive_path(tree, node))
                self._check_row(row, text.tokens + path)
                row += 1

    def _check_row(self, row: int, tokens: Tokens) -> None:
        wanted = self.plain.after(tokens).logits
        demand(
            wanted is not None and same(self._attempts.rows[row], wanted),
            f"row {row} after {tokens}",
        )
