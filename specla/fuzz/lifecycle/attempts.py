"""Runs operations that may be made to fail, and keeps account of which layers have folded what.

Whether a failure may break a sequence follows from this account, not from the ledger's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from specla.fuzz.demand import demand
from specla.fuzz.failing import FOLDS, FailingBackend, InjectedError
from specla.fuzz.lifecycle.texts import Failure, Text
from specla.models.qwen35.target import Verified

Outputs = Callable[[Verified], np.ndarray]
"""A pass -> float32 [rows, width] on the host."""

_WINDOW = ("conv_verify", "fold_window")


class Attempts:
    """texts: the open sequences, in a list that is the driver's own.

    rows: outputs of the last pass that succeeded.
    """

    def __init__(self, backend: FailingBackend | None, texts: list[Text], outputs: Outputs) -> None:
        self._backend, self._texts, self._outputs = backend, texts, outputs
        self.rows: Any = None

    @property
    def failed(self) -> str:
        """Name of the kernel or transfer that raised last."""
        failed = self._backend.failed if self._backend is not None else None
        return failed[0] if failed is not None else ""

    def run(self, batch: list[Text], operation: Callable[[], Any], failure: Failure | None) -> bool:
        """Run an operation on ``batch``; False if the injected failure struck."""
        if self._backend is None:
            result = operation()
            for text in batch:
                # without a log: an operation that succeeded has folded everything
                text.unfolded = frozenset()
        else:
            self._backend.log.clear()
            if failure is not None:
                self._backend.arm(failure.n, failure.when, failure.names)
            try:
                result = operation()
            except InjectedError:
                self._account(self._backend)
                self._account_failure(self._backend, batch)
                return False
            finally:
                self._backend.disarm()
            self._account(self._backend)
        if result is not None:
            self.rows = self._outputs(result)
        return True

    def _account(self, backend: FailingBackend) -> None:
        """Every fold kernel that ran was told to fold exactly what was unfolded."""
        for fold in backend.log:
            key = (fold.kind, fold.layer)
            for slot, told in zip(fold.slots, fold.counts, strict=True):
                text = self._in_slot(slot)
                wanted = text.pending if key in text.unfolded else 0
                demand(told == wanted, f"slot {slot}, {key}: told to fold {told}, not {wanted}")
                text.unfolded -= {key}
        backend.log.clear()

    def _account_failure(self, backend: FailingBackend, batch: list[Text]) -> None:
        """A failed fold breaks those of the batch whose durable arrays it was writing: all of a
        verify, but one at a time where a prefill flushes first."""
        if backend.failed is None or backend.failed[0] not in FOLDS:
            return
        name, layer = backend.failed
        key = ("window" if name in _WINDOW else "state", layer)
        for text in batch:
            written = text.sequence.slot in backend.failed_slots
            text.broken = written and key in text.unfolded

    def _in_slot(self, slot: int) -> Text:
        found = [text for text in self._texts if text.sequence.slot == slot]
        demand(len(found) == 1, f"{len(found)} sequences in slot {slot}")
        return found[0]
