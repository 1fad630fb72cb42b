"""The life of a sequence as an explicit state machine (docs/architecture.md, "Lifecycle").

A ledger knows nothing of arrays: it says which operations are legal, what is pending, and what a
failure means. Whoever owns the arrays asks it before and tells it after each write.

===========  =============================================================================
EMPTY        nothing prefilled or committed yet
CLEAN        the durable state is complete
PENDING      accepted factors wait in a bank to be folded
VERIFIED     a verify ran to its end and nothing is decided
BROKEN       a write to the durable state died half-way: only restore() and close() are left
CLOSED       the slot is given back
===========  =============================================================================

Every recurrent layer carries the epoch of the acceptance that it has absorbed, separately for the
recurrent state and the convolution window. So a forward pass that dies *between* two layers leaves
a sequence that the next pass (or a flush) completes, folding each layer exactly once. A pass that
dies *inside* a durable write can't be told from a half-written one, and the ledger says BROKEN.
A step that runs as a whole (``folding_all``) is untouched, done, or BROKEN.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from specla.core.banks import BankMove, Banks, accept
from specla.core.plan import Place
from specla.core.topology import Tree
from specla.errors import BrokenSequenceError, LifecycleError


class Phase(Enum):
    """See the module's table."""

    EMPTY = "empty"
    CLEAN = "clean"
    PENDING = "pending"
    VERIFIED = "verified"
    BROKEN = "broken"
    CLOSED = "closed"


class Progress(Enum):
    """How far a step came that runs as a whole."""

    UNTOUCHED = "untouched"
    PARTIAL = "partial"
    DONE = "done"


OPEN_PHASES = (Phase.EMPTY, Phase.CLEAN, Phase.PENDING, Phase.VERIFIED)
"""Phases in which a sequence can be used."""


@dataclass(frozen=True)
class LedgerState:
    """All that a snapshot must keep besides arrays."""

    length: int
    banks: Banks
    epoch: int
    state_epochs: tuple[int, ...]
    window_epochs: tuple[int, ...]


class Ledger:
    """Bookkeeping of one sequence.

    slot: its index in the pools.  n_layers: recurrent layers.
    length: positions in the state, pending ones included.
    """

    def __init__(self, slot: int, n_layers: int) -> None:
        self.slot = slot
        self.length = 0
        self.banks = Banks()
        self.tree: Tree | None = None
        self._n_layers = n_layers
        self._epoch = 0
        self._state_epochs = [0] * n_layers
        self._window_epochs = [0] * n_layers
        self._writing: str | None = None
        self._closed = False

    # -- what holds now ----------------------------------------------------------------

    @property
    def phase(self) -> Phase:
        """Derived, never stored: it can't disagree with the facts."""
        if self._closed:
            return Phase.CLOSED
        if self._writing is not None:
            return Phase.BROKEN
        if self.tree is not None:
            return Phase.VERIFIED
        if self._unfolded():
            return Phase.PENDING
        return Phase.CLEAN if self.length else Phase.EMPTY

    @property
    def pending_count(self) -> int:
        """Accepted factors that at least one layer has not folded."""
        return self.banks.pending_count if self._unfolded() else 0

    def _unfolded(self) -> bool:
        if not self.banks.pending_count:
            return False
        return any(e < self._epoch for e in (*self._state_epochs, *self._window_epochs))

    def place(self) -> Place:
        """The sequence's entry in a step plan."""
        count = self.banks.pending_count
        return Place(
            slot=self.slot,
            committed=self.length,
            pending_bank=self.banks.pending_bank,
            pending_state=tuple(count if e < self._epoch else 0 for e in self._state_epochs),
            pending_window=tuple(count if e < self._epoch else 0 for e in self._window_epochs),
        )

    def require(self, operation: str, *phases: Phase) -> None:
        """Raise LifecycleError (and change nothing) unless the sequence is in one of ``phases``."""
        phase = self.phase
        if phase in phases:
            return
        if phase is Phase.BROKEN:
            raise BrokenSequenceError(
                f"sequence in slot {self.slot} is broken ({self._writing} died half-way); "
                f"{operation} is refused, use restore() or close()"
            )
        wanted = " or ".join(p.value for p in phases)
        raise LifecycleError(
            f"{operation} is not legal while the sequence in slot {self.slot} is {phase.value}; "
            f"it must be {wanted}"
        )

    # -- writes to durable state ---------------------------------------------------------

    @contextmanager
    def writing(self, what: str) -> Iterator[None]:
        """Around a write that can't be undone. If it does not return, the sequence is BROKEN."""
        self._writing = what
        yield
        self._writing = None

    @contextmanager
    def folding_state(self, layer: int) -> Iterator[None]:
        """Around the kernel that folds pending factors into layer ``layer``'s recurrent state."""
        with self._folding(self._state_epochs, layer, "a fold of recurrent state"):
            yield

    @contextmanager
    def folding_window(self, layer: int) -> Iterator[None]:
        """Around the kernel that folds pending inputs into layer ``layer``'s conv window."""
        with self._folding(self._window_epochs, layer, "a fold of a convolution window"):
            yield

    @contextmanager
    def _folding(self, epochs: list[int], layer: int, what: str) -> Iterator[None]:
        if epochs[layer] == self._epoch or not self.banks.pending_count:
            # nothing durable is written, so a failure costs nothing
            yield
            epochs[layer] = self._epoch
            return
        with self.writing(f"{what} (layer {layer})"):
            yield
            # inside: an interrupt before this line leaves the sequence BROKEN, never wrong
            epochs[layer] = self._epoch

    @contextmanager
    def folding_all(self, progress: Callable[[], Progress]) -> Iterator[None]:
        """Around a step that folds what is pending in all layers and runs as a whole.

        progress: how far it came, asked if it is interrupted: an interrupt before or after it
        costs nothing, one in the middle leaves the sequence BROKEN.
        """
        durable = bool(self.pending_count)
        if durable:
            self._writing = "a fold of all layers"
        try:
            yield
        except GeneratorExit:
            # never left properly, and closed at some later time: what is BROKEN stays so
            raise
        except BaseException:
            came = progress()
            if durable and came is Progress.UNTOUCHED:
                self._writing = None
            elif came is Progress.DONE:
                self._fold_all()
            raise
        self._fold_all()

    def _fold_all(self) -> None:
        self._state_epochs = [self._epoch] * self._n_layers
        self._window_epochs = [self._epoch] * self._n_layers
        self._writing = None

    # -- operations -----------------------------------------------------------------------

    def begin_prefill(self) -> None:
        """Legal when nothing is pending or undecided."""
        self.require("prefill", Phase.EMPTY, Phase.CLEAN)

    def end_prefill(self, n_tokens: int) -> None:
        """All layers have absorbed ``n_tokens`` more positions."""
        self.length += n_tokens

    def require_open(self, operation: str) -> None:
        """Raise unless the sequence is neither BROKEN nor CLOSED."""
        self.require(operation, *OPEN_PHASES)

    def begin_verify(self) -> None:
        """Legal in every open state; an undecided earlier verify is replaced."""
        self.require_open("verify")
        self.tree = None

    def end_verify(self, tree: Tree) -> None:
        """Every layer ran: pending factors are folded, the nodes' factors lie in the bank."""
        self.banks = Banks(self.banks.pending_bank, 0)
        self.tree = tree

    def plan_commit(self, path: object) -> BankMove:
        """Check a commit and say what it must move; changes nothing.

        Raises LifecycleError without a verify, TopologyError for a path that is not one.
        """
        self.require("commit", Phase.VERIFIED)
        if self.tree is None:  # implied by the phase
            raise LifecycleError("commit needs a verify before it")
        return accept(self.banks, self.tree.check_path(path))  # type: ignore[arg-type]

    def end_commit(self, acceptance: BankMove) -> None:
        """The rows have moved: the path is accepted and pending."""
        self.length += acceptance.banks.pending_count
        self.banks = acceptance.banks
        self._epoch += 1
        self.tree = None

    def discard(self) -> None:
        """Drop the verified nodes. Legal only after a verify."""
        self.require("discard", Phase.VERIFIED)
        self.tree = None

    def begin_flush(self) -> bool:
        """Whether there is anything to fold. An undecided verify must be settled first."""
        self.require("flush", Phase.EMPTY, Phase.CLEAN, Phase.PENDING)
        return self.phase is Phase.PENDING

    def end_flush(self) -> None:
        """Every layer has folded."""
        self.banks = Banks(self.banks.pending_bank, 0)

    def save(self) -> LedgerState:
        """For fork and snapshot. An undecided verify must be settled first."""
        self.require("snapshot", Phase.EMPTY, Phase.CLEAN, Phase.PENDING)
        return LedgerState(
            self.length,
            self.banks,
            self._epoch,
            tuple(self._state_epochs),
            tuple(self._window_epochs),
        )

    def begin_load(self) -> None:
        """Legal in every state but CLOSED; BROKEN is healed by it."""
        self.require("restore", *OPEN_PHASES, Phase.BROKEN)
        self._writing = "restore"

    def end_load(self, state: LedgerState) -> None:
        """The arrays of ``state`` are back in place."""
        self.length = state.length
        self.banks = state.banks
        self._epoch = state.epoch
        self._state_epochs = list(state.state_epochs)
        self._window_epochs = list(state.window_epochs)
        self.tree = None
        self._writing = None

    def close(self) -> None:
        """Give the slot back. Legal once."""
        self.require("close", *OPEN_PHASES, Phase.BROKEN)
        self._closed = True
