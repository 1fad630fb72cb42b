"""Probabilities of a draft's choices, from logits on the host."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

LEADERS = 10
"""Logits over which a drafted token's confidence is a softmax (llama.cpp's convention)."""


def log_probability(logits: npt.NDArray[np.float32], token: int) -> float:
    """ln of the softmax over all ``logits`` [vocab] at ``token``, whose logit is the largest.

    Summed in float64. NaN where a logit is NaN, or all are -inf.
    """
    with np.errstate(all="ignore"):
        shifted = logits - logits[token]
        return -math.log(float(np.exp(shifted, out=shifted).sum(dtype=np.float64)))


def leading_share(values: npt.NDArray[Any]) -> float:
    """Softmax over the first ``LEADERS`` of ``values``, descending, at the first of them."""
    best = values[:LEADERS].astype(np.float64)
    with np.errstate(all="ignore"):
        return float(1.0 / np.exp(best - best[0]).sum())
