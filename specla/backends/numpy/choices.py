"""Argmax and top-k, ties to the lowest token id; what turns logits into log-probabilities."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.backends.numpy.sums import blockwise_sum
from specla.core.elementary import exp

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


@np.errstate(all="ignore")
def soft_sums(logits: Float32, top_out: Float32, sum_out: Float32) -> None:
    """See Backend.soft_sums."""
    top = logits.max(axis=-1)
    top_out[...] = top + np.float32(0.0)  # -0.0 and +0.0 are one maximum
    sum_out[...] = blockwise_sum(exp(logits - top[:, None]).T)


def _without_nan(logits: Float32) -> Float32:
    return np.where(np.isnan(logits), np.float32(-np.inf), logits)
