"""DDTree: the best tree of a block drafter's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from specla.adapters.base import TargetInfo
from specla.adapters.block import BlockAdapter
from specla.adapters.block_rows import ConditionalRows, MarginalRows, SelectorRows
from specla.adapters.block_tree import (
    TreeOptions,
    check_tree,
    draft_temperature,
    tree_shape,
    usable_rows,
)
from specla.core.proposal import Proposal, SequenceView
from specla.core.trees import Expand, best_first
from specla.models.dflash.block import BlockDraft


@dataclass(frozen=True)
class DdtreeOptions(TreeOptions):
    """Options of the ddtree adapter, beside those of drafter and tree.

    conditional: draft again for every node that may have children, with its path in place of masks.
    selector: use DFlash2's path selector if the drafter has one, but not with ``conditional``.
    """

    conditional: bool = False
    selector: bool = True

    def __post_init__(self) -> None:
        check_tree("ddtree", self)


class DdtreeAdapter(BlockAdapter):
    """Proposes the best paths through the rows of one drafted block, as a tree.

    A row's candidates are those of plain DFlash, the same after every parent, unless the drafter
    has a path selector or ``conditional`` is set. A Markov head is left alone: the dspark adapter
    uses it.
    """

    Options = DdtreeOptions

    def bind(self, target: TargetInfo) -> None:
        super().bind(target)
        self._vocab_size = target.vocab_size
        self._top_k = min(self.options.top_k, target.vocab_size)
        self._selector = self.drafter.selector if self.options.selector else None
        self._width = self._top_k
        if self._selector is not None and not self.options.conditional:
            self._width = min(self._selector.top_k, target.vocab_size)
        self.drafter.prepare(self._width)

    @np.errstate(all="ignore")  # what a damaged draft says may be no number
    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One tree per view."""
        return [self._tree(view) for view in views]

    def _tree(self, view: SequenceView) -> Proposal:
        rows = usable_rows(self.drafter, view)
        if not rows:
            return Proposal()
        shape = tree_shape(self.options, view, rows)
        return best_first(view.root, self._scoring(view, rows), shape)

    def _scoring(self, view: SequenceView, rows: int) -> Expand:
        temperature, top_k = draft_temperature(self.options, view), self._top_k
        draft = self.drafter.draft(view, rows, self._width)
        if self.options.conditional:

            def redraft(path: tuple[int, ...]) -> BlockDraft:
                return self.drafter.redraft(view, path, self._width)

            return ConditionalRows(draft, redraft, top_k, self._vocab_size, temperature)
        if self._selector is not None:
            return SelectorRows(draft, self._selector, top_k, temperature)
        return MarginalRows(draft, top_k, self._vocab_size, temperature)
