"""Rotary position embedding tables: made on the host once, shared as data by all backends."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]


def rotary_table(positions: int, rotary_dim: int, base: float) -> tuple[Float32, Float32]:
    """cos and sin [positions, rotary_dim / 2]: float64 angles, rounded to float32 once."""
    exponent = np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim
    angle = np.arange(positions, dtype=np.float64)[:, None] / np.float64(base) ** exponent
    return np.cos(angle).astype(np.float32), np.sin(angle).astype(np.float32)
