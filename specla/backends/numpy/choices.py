"""Argmax and top-k: ties to the lowest token id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float32 = npt.NDArray[np.float32]
Int32 = npt.NDArray[np.int32]


def argmax(logits: Float32, out: Int32) -> None:
    """See Backend.argmax."""
    clean = _without_nan(logits)
    best = np.argmax(clean, axis=-1)
    impossible = np.isneginf(np.take_along_axis(clean, best[:, None], axis=-1)[:, 0])
    out[...] = np.where(impossible, -1, best)


def top_k(logits: Float32, k: int, values_out: Float32, ids_out: Int32) -> None:
    """See Backend.top_k."""
    clean = _without_nan(logits)
    # stable sort of the negated row: equal logits stay in ascending id order
    order = np.argsort(-clean, axis=-1, kind="stable")[:, :k]
    ids_out[...] = order
    values_out[...] = np.take_along_axis(clean, order, axis=-1)


def _without_nan(logits: Float32) -> Float32:
    return np.where(np.isnan(logits), np.float32(-np.inf), logits)
