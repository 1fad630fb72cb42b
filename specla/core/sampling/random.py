"""Random numbers keyed by (seed, position, stream): no state, so no call order can matter.

The generator is Philox4x64-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011)
with key (seed, stream). NumPy steps the counter before it generates, so position p reads the first
word of block p + 1; the top 53 bits make the number.
"""

from __future__ import annotations

import numpy as np

from specla.errors import OptionError

TARGET_STREAM = 0
"""The stream that decides the text."""

DRAFT_STREAM = 1
"""For drafts that sample: a draft that read the target's numbers would distort nothing (the target
alone decides), but its guesses would be correlated with the answers."""

_LIMIT = 2**64


def uniform(seed: int, position: int, stream: int = TARGET_STREAM) -> float:
    """A float64 in [0, 1), a multiple of 2**-53, the same for the same arguments everywhere.

    seed, position, stream: 0 .. 2**64 - 1. Raises OptionError outside.
    """
    for name, value in (("seed", seed), ("position", position), ("stream", stream)):
        if not 0 <= value < _LIMIT:
            raise OptionError(f"{name} is {value}; give a whole number from 0 to {_LIMIT - 1}")
    generator = np.random.Philox(
        key=np.array([seed, stream], dtype=np.uint64),
        counter=np.array([position, 0, 0, 0], dtype=np.uint64),
    )
    return float((int(generator.random_raw()) >> 11) * 2.0**-53)
