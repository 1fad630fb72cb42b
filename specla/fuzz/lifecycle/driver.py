"""Drives a target through the life of several sequences and checks every claim on the way.

The driver's own idea of a sequence is a list of committed tokens. All it compares with is plain
decoding (support/plain.py): logits of every verified row, and the state arrays, byte for byte.
Whether a failure may break a sequence follows from the driver's own account of which layers have
folded what, not from the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.errors import BrokenSequenceError, CapacityError, LifecycleError
from specla.fuzz.failing import FOLDS, KERNELS, FailingBackend, InjectedError
from specla.fuzz.plain import PlainDecoder, difference, same
from specla.models.qwen35.target import Qwen35Target
from specla.models.sequence import Sequence
from specla.models.store import Snapshot
from specla.testing.forests import naive_path

_WINDOW = ("conv_verify", "fold_window")


@dataclass(eq=False)
class Text:
    """What the driver knows of one sequence.

    unfolded: ("window" or "state", layer) that have yet to fold the ``pending`` factors.
    """

    sequence: Sequence
    tokens: tuple[int, ...] = ()
    tree: Tree | None = None
    pending: int = 0
    unfolded: frozenset[tuple[str, int]] = frozenset()
    broken: bool = False

    @property
    def phase(self) -> Phase:
        if self.broken:
            return Phase.BROKEN
        if self.tree is not None:
            return Phase.VERIFIED
        if self.unfolded:
            return Phase.PENDING
        return Phase.CLEAN if self.tokens else Phase.EMPTY


@dataclass(eq=False)
class Saved:
    snapshot: Snapshot
    tokens: tuple[int, ...]
    pending: int
    unfolded: frozenset[tuple[str, int]]


@dataclass
class Failure:
    """The n-th kernel call of an operation raises; see FailingBackend."""

    n: int
    when: str = "before"
    names: tuple[str, ...] = KERNELS


@dataclass
class Driver:
    """target: on a FailingBackend.  plain: the same weights in a target of their own."""

    target: Qwen35Target
    backend: FailingBackend
    plain: PlainDecoder
    texts: list[Text] = field(default_factory=list)
    saved: list[Saved] = field(default_factory=list)
    injected: int = 0

    # -- operations ------------------------------------------------------------------------

    def open(self) -> Text | None:
        if len(self.texts) == self.target.options.slots:
            with pytest.raises(CapacityError):
                self.target.open()
            return None
        text = Text(self.target.open())
        self.texts.append(text)
        self.check_phases()
        return text

    def close(self, text: Text) -> None:
        self.target.close(text.sequence)
        self.texts.remove(text)
        with pytest.raises(LifecycleError):
            self.target.close(text.sequence)
        self.check_phases()

    def prefill(
        self, items: list[tuple[Text, tuple[int, ...]]], failure: Failure | None = None
    ) -> bool:
        for text, tokens in items:
            if text.phase in (Phase.VERIFIED, Phase.BROKEN):
                with pytest.raises(LifecycleError):
                    self.target.prefill([(text.sequence, tokens)])
                return False
        calls = [(t.sequence, tokens) for t, tokens in items]
        batch = [text for text, _ in items]
        if not self._attempt(batch, lambda: self.target.prefill(calls, logits=True), failure):
            # a fold that died was the flush before the prefill; anything later breaks all
            if self.backend.failed is not None and self.backend.failed[0] not in FOLDS:
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
        calls = [(text.sequence, tree) for text, tree in items]
        broken = [text for text, _ in items if text.broken]
        if broken:
            with pytest.raises(BrokenSequenceError):
                self.target.verify(calls)
            return False
        done = self._attempt([t for t, _ in items], lambda: self.target.verify(calls), failure)
        for text, tree in items:
            text.tree = tree if done else None
            if done:
                assert not text.unfolded, "a verify that succeeded has folded every layer"
                text.pending = 0
        self.check_phases()
        if done:
            row = 0
            for text, tree in items:
                for node in range(len(tree)):
                    path = tuple(tree.tokens[n] for n in naive_path(tree, node))
                    self._check_row(row, text.tokens + path)
                    row += 1
        return done

    def commit(self, text: Text, path: tuple[int, ...], failure: Failure | None = None) -> bool:
        if text.tree is None:
            with pytest.raises(LifecycleError):
                self.target.commit(text.sequence, path)
            return False
        return self.commit_all([(text, path)], failure)

    def commit_all(
        self, items: list[tuple[Text, tuple[int, ...]]], failure: Failure | None = None
    ) -> bool:
        batch = [text for text, _ in items]
        calls: list[tuple[Sequence, object]] = [(text.sequence, path) for text, path in items]
        commit = self.target.store.commit_all
        if not self._attempt(batch, lambda: commit(calls), failure):
            for text in batch:
                text.broken = True
            self.check_phases()
            return False
        layers = range(self.target.config.n_gdn_layers)
        for text, path in items:
            assert text.tree is not None
            text.tokens += tuple(text.tree.tokens[node] for node in path)
            text.tree, text.pending = None, len(path)
            text.unfolded = frozenset((kind, i) for kind in ("window", "state") for i in layers)
        self.check_phases()
        return True

    def discard(self, text: Text) -> None:
        if text.phase is not Phase.VERIFIED:
            with pytest.raises(LifecycleError):
                self.target.discard(text.sequence)
            return
        self.target.discard(text.sequence)
        text.tree = None
        self.check_phases()

    def flush(self, text: Text, failure: Failure | None = None) -> bool:
        if text.phase in (Phase.VERIFIED, Phase.BROKEN):
            with pytest.raises(LifecycleError):
                self.target.flush(text.sequence)
            return False
        done = self._attempt([text], lambda: self.target.flush(text.sequence), failure)
        if done:
            assert not text.unfolded
            text.pending = 0
        self.check_phases()
        return done

    def fork(self, text: Text) -> Text | None:
        if text.phase in (Phase.VERIFIED, Phase.BROKEN):
            with pytest.raises(LifecycleError):
                self.target.fork(text.sequence)
            return None
        if len(self.texts) == self.target.options.slots:
            return None
        twin = Text(self.target.fork(text.sequence), text.tokens)
        twin.pending, twin.unfolded = text.pending, text.unfolded
        self.texts.append(twin)
        self.check_phases()
        return twin

    def snapshot(self, text: Text) -> Saved | None:
        if text.phase in (Phase.VERIFIED, Phase.BROKEN):
            with pytest.raises(LifecycleError):
                self.target.snapshot(text.sequence)
            return None
        snapshot = self.target.snapshot(text.sequence)
        self.saved.append(Saved(snapshot, text.tokens, text.pending, text.unfolded))
        return self.saved[-1]

    def restore(self, text: Text, saved: Saved) -> None:
        self.target.restore(text.sequence, saved.snapshot)
        text.tokens, text.tree, text.broken = saved.tokens, None, False
        text.pending, text.unfolded = saved.pending, saved.unfolded
        self.check_phases()

    def release(self, saved: Saved) -> None:
        self.target.store.release(saved.snapshot)
        self.saved.remove(saved)

    def close_all(self) -> None:
        for text in list(self.texts):
            self.close(text)
        for saved in list(self.saved):
            self.release(saved)
        pool = self.target.store.pages.pool
        assert pool.free == pool.n_pages, "pages leaked"

    # -- checks ----------------------------------------------------------------------------

    def check_phases(self) -> None:
        for text in self.texts:
            assert text.sequence.phase is text.phase
            assert text.sequence.length == len(text.tokens)
            if text.phase is Phase.PENDING:
                assert text.sequence.ledger.pending_count == text.pending

    def check_state(self, text: Text) -> None:
        """State arrays of a copy equal plain decoding's; the sequence itself stays as it is."""
        if text.phase in (Phase.VERIFIED, Phase.BROKEN):
            return
        twin = self.fork(text)
        if twin is not None:
            self._compare(twin)
            self.close(twin)
            return
        saved = self.snapshot(text)
        assert saved is not None
        self._compare(text)
        self.restore(text, saved)
        self.release(saved)

    def check_features(self, text: Text) -> None:
        wanted = self.plain.after(text.tokens).features
        if wanted is not None:
            found = self.target.features(text.sequence, 0, len(text.tokens))
            assert same(found, wanted)

    def _compare(self, text: Text) -> None:
        self.check_features(text)
        self.backend.log.clear()
        found = self.target.state_arrays(text.sequence)
        self._account()
        text.pending = 0
        assert difference(found, self.plain.after(text.tokens).arrays) == ""

    def _check_row(self, row: int, tokens: tuple[int, ...]) -> None:
        wanted = self.plain.after(tokens).logits
        assert wanted is not None and same(self._logits[row], wanted), f"row {row} after {tokens}"

    # -- running -----------------------------------------------------------------------------

    def _attempt(
        self, batch: list[Text], operation: Callable[[], Any], failure: Failure | None
    ) -> bool:
        """Run; False if the injected failure struck. Keeps account of what has folded."""
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
        self._account()
        if result is not None:
            self._logits = self.target.backend.download(result.logits)
        return True

    def _account(self) -> None:
        """Every fold kernel that ran: it was told to fold exactly what was unfolded."""
        for fold in self.backend.log:
            key = (fold.kind, fold.layer)
            for slot, told in zip(fold.slots, fold.counts, strict=True):
                text = self._in_slot(slot)
                assert told == (text.pending if key in text.unfolded else 0), f"{key}: {told}"
                text.unfolded -= {key}
        self.backend.log.clear()

    def _account_failure(self, batch: list[Text]) -> None:
        """A failed fold breaks those of the batch whose durable arrays it was writing: all of a
        verify, but one at a time where a prefill flushes first."""
        assert self.backend.failed is not None
        name, layer = self.backend.failed
        if name in FOLDS:
            key = ("window" if name in _WINDOW else "state", layer)
            for text in batch:
                written = text.sequence.slot in self.backend.failed_slots
                text.broken = written and key in text.unfolded

    def _in_slot(self, slot: int) -> Text:
        (found,) = [text for text in self.texts if text.sequence.slot == slot]
        return found
