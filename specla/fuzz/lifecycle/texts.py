"""What the driver knows of each sequence and snapshot, by its own account."""

from __future__ import annotations

from dataclasses import dataclass

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.fuzz.failing import KERNELS
from specla.models.sequence import Sequence
from specla.models.store import Snapshot


@dataclass(eq=False)
class Text:
    """One sequence. unfolded: ("window" or "state", layer) that have yet to fold the ``pending``
    factors."""

    sequence: Sequence
    tokens: tuple[int, ...] = ()
    tree: Tree | None = None
    pending: int = 0
    unfolded: frozenset[tuple[str, int]] = frozenset()
    broken: bool = False

    @property
    def phase(self) -> Phase:
        """What the sequence must say of itself."""
        if self.broken:
            return Phase.BROKEN
        if self.tree is not None:
            return Phase.VERIFIED
        if self.unfolded:
            return Phase.PENDING
        return Phase.CLEAN if self.tokens else Phase.EMPTY

    @property
    def settled(self) -> bool:
        """Whether it can be copied, flushed and prefilled."""
        return self.phase not in (Phase.VERIFIED, Phase.BROKEN)


@dataclass(eq=False)
class Saved:
    """One snapshot."""

    snapshot: Snapshot
    tokens: tuple[int, ...]
    pending: int
    unfolded: frozenset[tuple[str, int]]


@dataclass(frozen=True)
class Failure:
    """The n-th call of these kernels or transfers in an operation raises; see FailingBackend."""

    n: int
    when: str = "before"
    names: tuple[str, ...] = KERNELS
