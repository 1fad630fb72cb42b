"""DDTree: the best tree of a block drafter's rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specla.adapters.base import TargetInfo
from specla.adapters.block import BlockAdapter
from specla.adapters.block_rows import ConditionalRows, MarginalRows, SelectorRows, at_temperature
from specla.adapters.block_tree import TreeOptions, check_tree, tree_shape, usable_rows
from specla.adapters.checks import check_numbers
from specla.core.proposal import Proposal, SequenceView
from specla.core.trees import Expand, best_first
from specla.models.dflash.block import BlockDraft

TEMPERATURES = (1e-3, 1e3)


@dataclass(frozen=True)
class DdtreeOptions(TreeOptions):
    """Options of the ddtree adapter, beside those of drafter and tree.

    temperature: divides the draft's logits.  conditional: draft again for every node that may have
    children, with its path in place of masks.  selector: use DFlash2's path selector if the drafter
    has one; it scores at temperature 1, and not with ``conditional``.
    """

    temperature: float = 1.0
    conditional: bool = False
    selector: bool = True

    def __post_init__(self) -> None:
        check_tree("ddtree", self)
        check_numbers("ddtree", self, temperature=TEMPERATURES)


class DdtreeAdapter(BlockAdapter):
    """Proposes the best paths through the rows of one drafted block, as a tree.

    A row's candidates are those of plain DFlash, the same after every parent, unless the drafter
    has a path selector or ``conditional`` is set. A Markov head is left alone: the dspark adapter
    uses it.
    """

    Options = DdtreeOptions

    def bind(self, target: TargetInfo) -> None:
        super().bind(target)
        self._backend = target.backend
        self._top_k = min(self.options.top_k, target.vocab_size)
        self._selector = self.drafter.selector if self.options.selector else None
        self._width = self._top_k
        if self._selector is not None and not self.options.conditional:
            self._width = min(self._selector.top_k, target.vocab_size)
        self.drafter.prepare(self._width)

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        """One tree per view."""
        return [self._tree(view) for view in views]

    def _tree(self, view: SequenceView) -> Proposal:
        rows = usable_rows(self.drafter, view)
        if not rows:
            return Proposal()
        shape = tree_shape(self.options, view, rows)
        if self.options.conditional:
            return best_first(view.root, self._conditional(view, rows), shape)
        return best_first(view.root, self._rows(view, rows), shape)

    def _rows(self, view: SequenceView, rows: int) -> Expand:
        draft, selector = self.drafter.draft(view, rows, self._width), self._selector
        if selector is not None:
            return SelectorRows(draft, selector, self._top_k)
        return MarginalRows(self._tempered(draft), self._top_k)

    def _conditional(self, view: SequenceView, rows: int) -> Expand:
        def redraft(path: tuple[int, ...]) -> BlockDraft:
            return self._tempered(self.drafter.redraft(view, path, self._top_k))

        draft = self._tempered(self.drafter.draft(view, rows, self._top_k))
        return ConditionalRows(draft, redraft, self._top_k)

    def _tempered(self, draft: BlockDraft) -> BlockDraft:
        return at_temperature(draft, self.options.temperature, self._backend)
