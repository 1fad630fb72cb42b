"""From a file to a drafter: what it says first, its weights when it meets a target."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specla.models.dflash.config import DraftConfig, read_config
from specla.models.dflash.fit import check_block, check_fit, with_window
from specla.models.dflash.weights import DraftWeights, read_weights
from specla.models.gguf.file import GgufFile

if TYPE_CHECKING:
    from specla.adapters.base import TargetInfo
    from specla.models.dflash.drafter import DflashDrafter


@dataclass(frozen=True)
class DraftFile:
    """An opened drafter. Weights stay memory-mapped until it is bound."""

    path: Path
    gguf: GgufFile
    config: DraftConfig
    weights: DraftWeights

    @property
    def layers(self) -> tuple[int, ...]:
        """0-based layers of the target whose output it reads."""
        return self.config.target_layers

    @property
    def notes(self) -> tuple[str, ...]:
        """What the file left open and what was taken instead."""
        return self.config.notes

    def check(self, *, block: int | None = None, window: int | None = None) -> None:
        """Raise OptionError for options that this drafter can't be run with."""
        check_block(self.config, block)
        with_window(self.config, window)

    def bind(
        self, target: TargetInfo, *, block: int | None = None, window: int | None = None
    ) -> DflashDrafter:
        """Load the weights onto the target's backend.

        block: slots of a block, root included; None is the file's.  window: of sliding layers.
        Raises OptionError, one line, when the two don't fit together or an option is out of range.
        """
        from specla.models.dflash.drafter import DflashDrafter

        slots = check_block(self.config, block)
        weights = replace(self.weights, config=with_window(self.config, window))
        check_fit(weights, target)
        return DflashDrafter(weights, target, slots)


def open_drafter(path: str | Path) -> DraftFile:
    """Open and check a drafter's GGUF: metadata and memory maps only.

    Raises FileFormatError for a missing, damaged or inconsistent file, UnsupportedModelError for
    one that specla doesn't run.
    """
    gguf = GgufFile.open(path)
    config = read_config(gguf)
    return DraftFile(Path(path), gguf, config, read_weights(gguf, config))
