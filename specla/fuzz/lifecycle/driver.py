"""Drives a target through the life of several sequences and checks every claim on the way.

The driver's own idea of a sequence is a list of committed tokens. All it compares with is an
oracle's plain decoding: outputs of every verified row, and the state arrays, byte for byte.
Whether a failure may break a sequence follows from the driver's own account of which layers have
folded what, not from the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.errors import BrokenSequenceError, CapacityError, LifecycleError
from specla.fuzz.demand import demand, demand_refusal
from specla.fuzz.failing import FOLDS, TRANSFERS, FailingBackend, InjectedError
from specla.fuzz.lifecycle.texts import Failure, Saved, Text
from specla.fuzz.plain import Record, difference, same
from specla.models.qwen35.target import Qwen35Target, Verified
from specla.testing.forests import naive_path

Tokens = tuple[int, ...]
_WINDOW = ("conv_verify", "fold_window")


class Oracle(Protocol):
    """Plain decoding: what each list of tokens leads to."""

    def after(self, tokens: Tokens) -> Record:
        """State arrays, outputs and features after ``tokens``."""

    def forget(self, keep: list[Tokens]) -> None:
        """Drop what it remembers, but for ``keep``."""


@dataclass
class Driver:
    """target: under test.  backend: the failing one that it computes on, or None; then nothing
    fails, and steps are recorded where the backend does that.  outputs: of a pass, on the host.
    injected: failures so far.
    """

    target: Qwen35Target
    backend: FailingBackend | None
    plain: Oracle
    outputs: Callable[[Verified], npt.NDArray[np.float32]] = field(repr=False)
    texts: list[Text] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    injected: int = 0

    # -- operations ------------------------------------------------------------------------

    def open(self, failure: Failure | None = None) -> Text | None:
        """A fresh sequence; None when there is no room, or it failed."""
        if len(self.texts) == self.target.options.slots:
            demand_refusal(CapacityError, self.target.open)
            return None
        opened: list[Text] = []

        def attempt() -> None:
            opened.append(Text(self.target.open()))

        if self._attempt([], attempt, failure):
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
        if not self._attempt(batch, lambda: self.target.prefill(calls, logits=True), failure):
            # a fold that died was the flush before the prefill, a transfer came before any write
            if self._failed() not in (*FOLDS, *TRANSFERS):
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
        done = self._attempt([t for t, _ in items], lambda: self.target.verify(calls), failure)
        untouched = not done and self._failed() in TRANSFERS
        for text, tree in items:
            if not untouched:
                text.tree = tree if done else None
            if done:
                demand(not text.unfolded, "a verify that succeeded has not folded every layer")
                text.pending = 0
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
        if not self._attempt(batch, lambda: commit(calls), failure):
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
        done = self._attempt([text], lambda: self.target.flush(text.sequence), failure)
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

        if self._attempt([], attempt, failure):
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

        self._attempt([], attempt, failure)
        self.saved += made
        return made[0] if made else None

    def restore(self, text: Text, saved: Saved, failure: Failure | None = None) -> bool:
        """Bring a sequence, its own or another one, to a snapshot."""
        restore = self.target.restore
        done = self._attempt([], lambda: restore(text.sequence, saved.snapshot), failure)
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

    def _compare(self, text: Text) -> None:
        self.check_features(text)
        found = {}

        def attempt() -> None:
            found.update(self.target.state_arrays(text.sequence))

        self._attempt([text], attempt, None)
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
        demand(wanted is not None and same(self._rows[row], wanted), f"row {row} after {tokens}")

    # -- running -----------------------------------------------------------------------------

    def _failed(self) -> str:
        """Name of the kernel or transfer that raised last."""
        failed = self.backend.failed if self.backend is not None else None
        return failed[0] if failed is not None else ""

    def _attempt(
        self, batch: list[Text], operation: Callable[[], Any], failure: Failure | None
    ) -> bool:
        """Run; False if the injected failure struck. Keeps account of what has folded."""
        if self.backend is None:
            result = operation()
        else:
            self.backend.log.clear()
            if failure is not None:
                self.backend.arm(failure.n, failure.when, failure.names)
            try:
                result = operation()
            except InjectedError:
                self.injected += 1
                self._account()
                self._account_failure(batch)
                return False
            finally:
                self.backend.disarm()
        self._account(batch)
        if result is not None:
            self._rows = self.outputs(result)
        return True

    def _account(self, batch: list[Text] | None = None) -> None:
        """Every fold kernel that ran: it was told to fold exactly what was unfolded.

        batch: of an operation that succeeded. Without a log it has folded everything.
        """
        for fold in self.backend.log if self.backend is not None else ():
            key = (fold.kind, fold.layer)
            for slot, told in zip(fold.slots, fold.counts, strict=True):
                text = self._in_slot(slot)
                wanted = text.pending if key in text.unfolded else 0
                demand(told == wanted, f"slot {slot}, {key}: told to fold {told}, not {wanted}")
                text.unfolded -= {key}
        if self.backend is not None:
            self.backend.log.clear()
            return
        for text in batch or ():
            text.unfolded = frozenset()

    def _account_failure(self, batch: list[Text]) -> None:
        """A failed fold breaks those of the batch whose durable arrays it was writing: all of a
        verify, but one at a time where a prefill flushes first."""
        if self.backend is None or self.backend.failed is None:
            return
        name, layer = self.backend.failed
        if name in FOLDS:
            key = ("window" if name in _WINDOW else "state", layer)
            for text in batch:
                written = text.sequence.slot in self.backend.failed_slots
                text.broken = written and key in text.unfolded

    def _in_slot(self, slot: int) -> Text:
        found = [text for text in self.texts if text.sequence.slot == slot]
        demand(len(found) == 1, f"{len(found)} sequences in slot {slot}")
        return found[0]
