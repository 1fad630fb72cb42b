"""Rotary tables of a drafter, from its own metadata: plain, linearly scaled, or YaRN.

YaRN: arXiv 2309.00071, with the conventions of transformers and llama.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Scaling:
    """How the angles of a longer context are squeezed.

    factor: how much longer.  original_context: positions of the training, None for linear scaling,
    which divides every angle by ``factor``.  The rest is YaRN's: extrapolation (1: on), attention
    (a further factor of cosine and sine), beta_fast and beta_slow (turns within the original
    context above which a frequency keeps its angle, and below which it is divided).
    """

    factor: float
    original_context: int | None = None
    extrapolation: float = 1.0
    attention: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True)
class Rope:
    """base: None is the target's.  dim: rotated entries of a head, pairs (i, i + dim / 2)."""

    base: float | None
    dim: int
    scaling: Scaling | None = None


def draft_table(positions: int, rope: Rope, base: float) -> tuple[Float32, Float32]:
    """cos and sin [positions, dim / 2]: float64 angles, rounded to float32 once.

    base: what to use where the file names none.
    """
    base = base if rope.base is None else rope.base
    plain = np.float64(base) ** -(np.arange(0, rope.dim, 2, dtype=np.float64) / rope.dim)
    frequency, magnitude = plain, 1.0
    if rope.scaling is not None:
        frequency, magnitude = _scaled(plain, rope.dim, base, rope.scaling)
    angle = np.arange(positions, dtype=np.float64)[:, None] * frequency
    cos, sin = np.cos(angle) * magnitude, np.sin(angle) * magnitude
    return cos.astype(np.float32), sin.astype(np.float32)


def _scaled(plain: Float64, dim: int, base: float, scaling: Scaling) -> tuple[Float64, float]:
    """Frequencies, and what cosine and sine are multiplied by."""
    squeezed = plain / scaling.factor
    if scaling.original_context is None:
        return squeezed, scaling.attention
    if scaling.extrapolation == 0.0:
        return squeezed, scaling.attention
    low = math.floor(_index_of(scaling.beta_fast, dim, base, scaling.original_context))
    high = math.ceil(_index_of(scaling.beta_slow, dim, base, scaling.original_context))
    low, high = max(low, 0), min(high, dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    kept = (1.0 - ramp) * scaling.extrapolation
    magnitude = scaling.attention * (1.0 + 0.1 * math.log(max(scaling.factor, 1.0)))
    return squeezed * (1.0 - kept) + plain * kept, magnitude


def _index_of(turns: float, dim: int, base: float, context: int) -> float:
    """Index of the pair that makes so many turns within the original context."""
    return dim * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))
