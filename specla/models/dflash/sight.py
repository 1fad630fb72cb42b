"""Which cache rows the slots of a block see, in terms of a StepPlan.

The attention kernel shows a row the cache rows ``0 .. committed - 1`` and then a stretch of
``paths``; how far is told by ``position``. Here the block's own keys lie behind the context's, so
any mask is a matter of these numbers: no kernel of its own is needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from specla.models.dflash.config import DraftConfig
from specla.models.dflash.keys import Dialect

Int32 = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Sight:
    """What each of B slots sees, with ``length`` committed positions before the block.

    committed: cache rows 0.. that all see first.  position [B]: entries that a slot sees, minus 1.
    path_start [B], paths: the entries beyond ``committed`` that it sees start here.
    """

    committed: int
    position: Int32
    path_start: Int32
    paths: Int32


def _ints(start: int, stop: int) -> Int32:
    return np.arange(start, stop, dtype=np.int32)


def full(length: int, slots: int, causal: bool) -> Sight:
    """The whole context, and the whole block or the part up to the slot itself."""
    start = np.zeros(slots, dtype=np.int32)
    paths = _ints(length, length + slots)
    if causal:
        return Sight(length, paths, start, paths)
    everything = np.full(slots, length + slots - 1, dtype=np.int32)
    return Sight(length + slots, everything, start, paths)


def sliding(length: int, slots: int, window: int, causal: bool) -> Sight:
    """Keys less than ``window`` positions before the slot, and those after it unless causal."""
    query = _ints(length, length + slots)
    first = np.maximum(query - (window - 1), 0).astype(np.int32)
    last = query if causal else np.int32(length + slots - 1)
    lowest = int(first[0])
    return Sight(
        0,
        (last - first).astype(np.int32),
        (first - lowest).astype(np.int32),
        _ints(lowest, length + slots),
    )


def anchored(length: int, slots: int, window: int) -> Sight:
    """The last ``window`` committed positions for every slot, then the block up to the slot."""
    lowest = max(length - window, 0)
    position = _ints(length - lowest, length - lowest + slots)
    return Sight(0, position, np.zeros(slots, dtype=np.int32), _ints(lowest, length + slots))


class SightPair:
    """The sights of a drafter's layers: of those without a window, and of those with one.

    chains: how many chains the rows of each must form, so that rows of one chain see prefixes of
    one path.
    """

    def __init__(self, config: DraftConfig, slots: int) -> None:
        self.config, self.slots = config, slots
        self.kinds = sorted(set(config.sliding))
        self._anchored = config.dialect is Dialect.LUCEBOX

    @property
    def causal(self) -> bool:
        """Whether no slot sees a later one in any layer."""
        return self.config.causal or (self._anchored and all(self.config.sliding))

    def chains(self, is_sliding: bool) -> int:
        """1, or one per slot."""
        return self.slots if is_sliding and not self._anchored else 1

    def longest_path(self, context: int) -> int:
        """Entries of ``paths`` at most."""
        window = self.config.window
        return (context if window is None else min(window, context)) + self.slots

    def of(self, is_sliding: bool, length: int) -> Sight:
        """What the layers of a kind see of a block after ``length`` committed positions."""
        window = self.config.window
        if not is_sliding or window is None:
            return full(length, self.slots, self.config.causal)
        if self._anchored:
            return anchored(length, self.slots, window)
        return sliding(length, self.slots, window, self.config.causal)
