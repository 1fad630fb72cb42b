"""All sequences of a target: their slots in the pools, their pages, their lifecycle.

A store joins the ledger of each sequence (core/lifecycle.py: what is legal) to the arrays (backend
pools: where it lies). It knows no layer of any model.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from specla.backends.base import Backend
from specla.backends.pools import FeaturePool, KvPool, KvShape, RecurrentPool, RecurrentShape
from specla.core.lifecycle import Ledger, LedgerState
from specla.core.paging import pages_for
from specla.core.plan import CommitPlan, Plan, build_commit_plan, build_plan
from specla.core.topology import Forest, Tree
from specla.errors import CapacityError, LifecycleError
from specla.models.pages import PagedCache
from specla.models.sequence import Sequence


@dataclass(eq=False)
class Snapshot:
    """A sequence as it was: an exact copy, pending factors included. Release it when done."""

    ledger: LedgerState
    pages: list[int]
    arrays: tuple[Any, ...]
    released: bool = False


class SequenceStore:
    """Slots, pages and the operations on whole sequences.

    features: (layer ids, d_model) to capture, or None.  poison: fill freed memory with NaN, so
    that a read of stale data shows; for tests.
    """

    def __init__(
        self,
        backend: Backend,
        recurrent: RecurrentShape,
        kv: KvShape,
        features: tuple[tuple[int, ...], int] | None = None,
        *,
        poison: bool = False,
    ) -> None:
        self.backend = backend
        self.recurrent: RecurrentPool = backend.recurrent_pool(recurrent)
        self.kv: KvPool = backend.kv_pool(kv)
        self.features: FeaturePool | None = None
        if features is not None and features[0]:
            self.features = backend.feature_pool(features[0], kv.slots, kv.context, features[1])
        self.pages = PagedCache(backend, self.kv, poison=poison)
        self._free_slots = list(range(recurrent.slots - 1, -1, -1))
        self._poison = poison
        self._runner = backend.step_runner()
        self._plans = backend.plan_buffers(kv.context)
        if poison:
            for slot in range(recurrent.slots):
                self._poison_slot(slot)
            backend.poison(self.kv.key)
            backend.poison(self.kv.value)

    # -- opening and closing ---------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether another sequence can be opened."""
        return bool(self._free_slots)

    def open(self) -> Sequence:
        """A fresh, empty sequence. Raises CapacityError when all slots are taken."""
        if not self._free_slots:
            n = self.recurrent.shape.slots
            raise CapacityError(f"all {n} sequence slots are in use; close one or raise `slots`")
        slot = self._free_slots[-1]
        self.backend.clear(self.recurrent.state, slot)
        self.backend.clear(self.recurrent.window, slot)
        self._free_slots.pop()
        return Sequence(Ledger(slot, self.recurrent.shape.layers))

    def close(self, sequence: Sequence) -> None:
        """Give slot and pages back."""
        sequence.ledger.close()
        self.pages.switch(sequence, [])
        if self._poison:
            self._poison_slot(sequence.slot)
        self._free_slots.append(sequence.slot)

    def _poison_slot(self, slot: int) -> None:
        pool = self.recurrent
        arrays = [pool.state, pool.window, pool.key, pool.delta, pool.decay, pool.inputs]
        if self.features is not None:
            arrays.append(self.features.rows)
        for array in arrays:
            self.backend.poison(array, slot)

    # -- what follows a verify -----------------------------------------------------------------

    def commit(self, sequence: Sequence, path: object) -> None:
        """Accept the nodes of ``path`` (root first) of the last verify.

        A prefix of the node order only rotates the banks; otherwise one gather. Rows of the KV
        cache and captured features move onto the spine. Raises LifecycleError without a verify,
        TopologyError for a path that is not one; then nothing has changed.
        """
        self.commit_all([(sequence, path)])

    def commit_all(self, items: list[tuple[Sequence, object]]) -> None:
        """:meth:`commit` for several sequences of a batch: one gather and one move for all."""
        if len({id(sequence) for sequence, _ in items}) != len(items):
            raise CapacityError("a sequence is named twice in one commit; name each once")
        moves = [sequence.ledger.plan_commit(path) for sequence, path in items]
        with ExitStack() as stack:
            for sequence, _ in items:
                stack.enter_context(sequence.ledger.writing("a commit"))
            copies = [
                (sequence.slot, sequence.length, move)
                for (sequence, _), move in zip(items, moves, strict=True)
                if move.gather
            ]
            if copies:
                self._copy_paths(self.upload_plan(build_commit_plan(copies)))
            for (sequence, _), move in zip(items, moves, strict=True):
                sequence.ledger.end_commit(move)

    def _copy_paths(self, plan: CommitPlan) -> None:
        def calls() -> None:
            self.backend.gather(self.recurrent, plan)
            self.backend.kv_move(self.kv, plan)
            if self.features is not None:
                self.backend.feature_move(self.features, plan)

        self._runner.run("commit", plan, calls)

    def discard(self, sequence: Sequence) -> None:
        """Drop the verified nodes: the state is what it was before the verify."""
        sequence.ledger.discard()

    def flush(self, sequence: Sequence) -> None:
        """Fold whatever is pending into the durable state. Idempotent; safe to retry."""
        ledger = sequence.ledger
        if not ledger.begin_flush():
            return
        plan = self.upload_plan(build_plan(Forest((Tree.lone(0),)), [ledger.place()]))
        for layer in range(self.recurrent.shape.layers):
            with ledger.folding_window(layer):
                self.backend.fold_window(self.recurrent, layer, plan)
            with ledger.folding_state(layer):
                self.backend.fold_state(self.recurrent, layer, plan)
        ledger.end_flush()

    def upload_plan(self, plan: Plan) -> Plan:
        """A plan's arrays on the device, good until the next plan of its kind."""
        return self._plans.upload(plan)

    # -- copies -------------------------------------------------------------------------------

    def _parts(self, slot: int, state: LedgerState) -> list[tuple[Any, Any]]:
        """(array, index) of everything in a slot that is worth copying."""
        pool, bank, count = self.recurrent, state.banks.pending_bank, state.banks.pending_count
        parts: list[tuple[Any, Any]] = [(pool.state, slot), (pool.window, slot)]
        if count:
            index = (slot, bank, slice(None), slice(count))
            parts += [(a, index) for a in (pool.key, pool.delta, pool.decay, pool.inputs)]
        if self.features is not None and state.length:
            parts.append((self.features.rows, (slot, slice(state.length))))
        return parts

    def fork(self, sequence: Sequence) -> Sequence:
        """An independent sequence in the same state; full pages are shared, not copied."""
        state = sequence.ledger.save()
        twin = self.open()
        try:
            pairs = zip(
                self._parts(twin.slot, state), self._parts(sequence.slot, state), strict=True
            )
            for (target, target_index), (source, source_index) in pairs:
                self.backend.copy(target, target_index, source, source_index)
            self.pages.adopt(twin, _committed_pages(sequence))
        except BaseException:
            self.close(twin)
            raise
        twin.ledger.begin_load()
        twin.ledger.end_load(state)
        return twin

    def snapshot(self, sequence: Sequence) -> Snapshot:
        """An exact copy to come back to. An undecided verify must be settled first."""
        state = sequence.ledger.save()
        parts = self._parts(sequence.slot, state)
        arrays = tuple(self._copy_out(array, index) for array, index in parts)
        pages = _committed_pages(sequence)
        self.pages.pool.share(pages)
        return Snapshot(state, pages, arrays)

    def _copy_out(self, array: Any, index: Any) -> Any:
        kept = self.backend.empty(tuple(self.backend.view(array, index).shape))
        self.backend.copy(kept, ..., array, index)
        return kept

    def restore(self, sequence: Sequence, snapshot: Snapshot) -> None:
        """Bring ``sequence`` back to ``snapshot``; heals a BROKEN one. May be done again."""
        if snapshot.released:
            raise LifecycleError("restore from a snapshot that was released; take a new one")
        sequence.ledger.begin_load()
        parts = self._parts(sequence.slot, snapshot.ledger)
        for (target, index), source in zip(parts, snapshot.arrays, strict=True):
            self.backend.copy(target, index, source, ...)
        self.pages.adopt(sequence, snapshot.pages)
        sequence.ledger.end_load(snapshot.ledger)

    def release(self, snapshot: Snapshot) -> None:
        """Give a snapshot's pages back."""
        if not snapshot.released:
            snapshot.released = True
            self.pages.release(snapshot.pages)


def _committed_pages(sequence: Sequence) -> list[int]:
    """Without the room that was made for a wide tree."""
    return sequence.pages[: pages_for(sequence.length)]
