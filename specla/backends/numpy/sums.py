"""The orders in which the contract adds floats (docs/arithmetic.md, sections 2, 5 and 6)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]

BLOCK = 64
"""Positions, or logits, whose exponentials are added by one tree."""
SEGMENTS = 8
"""Contiguous runs of blocks that are summed on their own: a GPU's split-K, free on a CPU."""


def halving_tree(x: Float32, axis: int = -1) -> Float32:
    """Sum over ``axis``: pad with +0.0 to a power of two, then add the halves until one is left."""
    x = np.moveaxis(x, axis, 0)
    size = 1 << max(x.shape[0] - 1, 0).bit_length()
    if size != x.shape[0]:
        padding = np.zeros((size - x.shape[0], *x.shape[1:]), dtype=np.float32)
        x = np.concatenate([x, padding])
    while size > 1:
        size //= 2
        x = x[:size] + x[size:]
    total: Float32 = x[0]
    return total


def segmented_sum(terms: Float32) -> Float32:
    """Sum over the leading axis of blocks: terms [blocks, ...].

    The blocks are cut into 8 runs of ceil(blocks / 8); each run is added from left to right,
    starting from +0.0; the 8 partial sums by the halving tree. Missing blocks count as +0.0, which
    can't change a running sum that began at +0.0.
    """
    blocks = terms.shape[0]
    run = -(-blocks // SEGMENTS)
    missing = run * SEGMENTS - blocks
    if missing:
        padding = np.zeros((missing, *terms.shape[1:]), dtype=np.float32)
        terms = np.concatenate([terms, padding])
    runs = terms.reshape(SEGMENTS, run, *terms.shape[1:])
    total = np.zeros_like(runs[:, 0])
    for i in range(run):
        total = total + runs[:, i]
    return halving_tree(total, axis=0)


def blockwise_sum(x: Float32) -> Float32:
    """Sum over the leading axis of x [n, ...]: a halving tree per block of 64, blocks in order."""
    total = np.zeros(x.shape[1:], dtype=np.float32)
    for start in range(0, x.shape[0], BLOCK):
        block = x[start : start + BLOCK]
        if len(block) < BLOCK:
            padding = np.zeros((BLOCK - len(block), *x.shape[1:]), dtype=np.float32)
            block = np.concatenate([block, padding])
        total = total + halving_tree(block, axis=0)
    return total
