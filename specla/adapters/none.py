"""Plain decoding: no candidates."""

from __future__ import annotations

from collections.abc import Sequence

from specla.adapters.base import Adapter
from specla.core.proposal import Proposal, SequenceView


class NoneAdapter(Adapter):
    """Proposes nothing, so that each round verifies the root alone."""

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        return [Proposal() for _ in views]
