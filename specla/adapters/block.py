"""What all adapters of block drafters share: file, options, the drafter bound to a target."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.core.proposal import SequenceView
from specla.errors import OptionError

if TYPE_CHECKING:
    from specla.models.dflash.block import BlockDrafter
    from specla.models.dflash.drafter import DflashDrafter
    from specla.models.dflash.load import DraftFile


@dataclass(frozen=True)
class BlockOptions:
    """Options of every adapter with a block drafter.

    draft: path of the drafter's GGUF.  window: override of its sliding window, in positions.
    block: slots of a block, root included, instead of the file's.
    """

    draft: str
    window: int | None = None
    block: int | None = None


class BlockAdapter(Adapter):
    """Base class: opens the file at once, so that its needs are known, and loads it when bound.

    file: the opened drafter.  drafter: set by ``bind``.
    """

    def __init__(self, options: Any = None) -> None:
        """Raises OptionError without a path or for a bad option, FileFormatError or
        UnsupportedModelError for a file that can't be used."""
        super().__init__(options)
        path = getattr(options, "draft", None)
        if not path:
            raise OptionError("a block drafter needs its GGUF file; give --draft PATH")
        from specla.models.dflash.load import open_drafter

        self.file: DraftFile = open_drafter(path)
        self.file.check(block=options.block, window=options.window)
        self._drafter: DflashDrafter | None = None

    @property
    def drafter(self) -> BlockDrafter:
        """The drafter. Raises OptionError before ``bind``."""
        if self._drafter is None:
            raise OptionError("the adapter has met no target yet; bind it first")
        return self._drafter

    def needs(self) -> Needs:
        """Features of the drafter's layers, and the target's matrices."""
        return Needs(features=self.file.layers, parts=True)

    def bind(self, target: TargetInfo) -> None:
        """Check that the two fit and load the weights. A second session of one target keeps them.

        Raises OptionError, one line.
        """
        options = self.options
        if self._drafter is None or not self._drafter.serves(target):
            self._drafter = self.file.bind(target, block=options.block, window=options.window)

    def open(self, view: SequenceView) -> None:
        """Take up the prompt."""
        self.drafter.take_up(view)

    def close(self, view: SequenceView) -> None:
        """Drop the sequence's context."""
        if self._drafter is not None:
            self._drafter.close(view.key)
