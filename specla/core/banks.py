"""Two factor banks per sequence, and what acceptance does to them (SpecLA, section 5.1).

One bank holds the *pending* factors: those of the accepted nodes that the durable state has not
folded yet. A verify writes the factors of all its nodes to the other, *current* bank. Acceptance
then either rotates (the accepted path is a prefix of the node order: the banks only change roles)
or gathers (the path's factors are copied, in path order, over the old pending bank, which every
layer has folded by then).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Banks:
    """Which bank is pending, and how many factors it holds."""

    pending_bank: int = 0
    pending_count: int = 0

    @property
    def current_bank(self) -> int:
        """The bank that the next verify writes to."""
        return 1 - self.pending_bank


@dataclass(frozen=True)
class BankMove:
    """The effect of accepting a path.

    banks: roles afterwards.  gather: nodes to copy, in order, from ``source_bank`` to
    ``banks.pending_bank``; empty for a rotation.
    moves: (from, to) offsets behind the committed position for rows of the KV cache and of
    captured features, in ascending order; rows that already lie in place are left out.
    """

    banks: Banks
    source_bank: int
    gather: tuple[int, ...]
    moves: tuple[tuple[int, int], ...]


def accept(banks: Banks, path: tuple[int, ...]) -> BankMove:
    """Accept ``path`` (root first, validated against its tree) after a complete verify."""
    moves = tuple((node, i) for i, node in enumerate(path) if node != i)
    if not moves:
        return BankMove(Banks(banks.current_bank, len(path)), banks.current_bank, (), ())
    return BankMove(Banks(banks.pending_bank, len(path)), banks.current_bank, path, moves)
