"""Order of the value heads: grouped in Hugging Face checkpoints, tiled in GGUF files.

With Hk key heads and Hv = r * Hk value heads, a checkpoint's value head g uses key head g // r,
a GGUF file's value head t uses key head t % Hk. So tiled head t = j * Hk + k is grouped head
k * r + j.
"""

from __future__ import annotations

import numpy as np


def grouped_of_tiled(n_key_heads: int, n_value_heads: int) -> np.ndarray:
    """int64 [Hv]: for each head of the tiled order, its index in the grouped order."""
    ratio = n_value_heads // n_key_heads
    return np.arange(n_value_heads).reshape(n_key_heads, ratio).T.ravel()


def spread(heads: np.ndarray, size: int, start: int = 0) -> np.ndarray:
    """Indices of `size` consecutive features per head, from `start` on: int64 [heads * size]."""
    return (start + heads[:, None] * size + np.arange(size)).ravel()


def qkv_order(n_key_heads: int, n_value_heads: int, key_dim: int, value_dim: int) -> np.ndarray:
    """int64 [C]: for each GGUF channel (q | k | v), its index among the checkpoint's channels."""
    n_query_key = 2 * n_key_heads * key_dim
    heads = grouped_of_tiled(n_key_heads, n_value_heads)
    return np.concatenate([np.arange(n_query_key), spread(heads, value_dim, n_query_key)])
