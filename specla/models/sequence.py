"""One text being decoded, as its owner sees it."""

from __future__ import annotations

from dataclasses import dataclass, field

from specla.core.lifecycle import Ledger, Phase


@dataclass(eq=False)
class Sequence:
    """One text being decoded. Owned by its store; hold it, don't build it.

    pages: of the KV cache, in order.  table_stale: the device's page table doesn't know them yet.
    """

    ledger: Ledger
    pages: list[int] = field(default_factory=list)
    table_stale: bool = True

    @property
    def slot(self) -> int:
        """Index in the pools."""
        return self.ledger.slot

    @property
    def length(self) -> int:
        """Positions in the state, pending ones included."""
        return self.ledger.length

    @property
    def phase(self) -> Phase:
        """See core/lifecycle.py."""
        return self.ledger.phase
