"""Inputs for comparing the compiled backend with the reference: ordinary and hostile floats."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st
from support.arrays import normal

SPECIAL = np.array(
    [0.0, -0.0, 1e-45, -1e-45, 1e-38, 3e38, -3e38, 1.0, np.inf, -np.inf, np.nan], dtype=np.float32
)
MOODS = ("plain", "tiny", "huge", "signed zeros", "hostile")
moods = st.sampled_from(MOODS)
seeds = st.integers(0, 2**32 - 1)


def values(rng: np.random.Generator, mood: str, *shape: int) -> np.ndarray:
    """float32 of a mood: hostile mixes in a few of SPECIAL."""
    x = normal(rng, *shape)
    if mood == "tiny":
        x = (x * np.float32(1e-40)).astype(np.float32)
    elif mood == "huge":
        x = (x * np.float32(1e18)).astype(np.float32)
    elif mood == "signed zeros":
        x = np.where(rng.random(shape) < 0.7, np.copysign(np.float32(0), x), x)
    elif mood == "hostile":
        x = np.where(rng.random(shape) < 0.1, rng.choice(SPECIAL, shape), x)
    return x.astype(np.float32)


def strided(rng: np.random.Generator, x: np.ndarray) -> np.ndarray:
    """The same values as columns of a wider array whose other entries are NaN."""
    if rng.random() < 0.5:
        return x
    wide = np.full((*x.shape[:-1], x.shape[-1] + 5), np.nan, dtype=x.dtype)
    wide[..., 3 : 3 + x.shape[-1]] = x
    return wide[..., 3 : 3 + x.shape[-1]]
