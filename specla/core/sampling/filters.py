"""From ranked logits to one token: softmax, top-p, min-p and the draw.

Probabilities are never normalised: a division would round, and every test below only compares with
a multiple of the sum. Sums run in float64 strictly from the most likely token down; exp is the
number contract's. So a machine's vector width or thread count can't change which token is drawn.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.core.elementary import exp
from specla.core.sampling.ranking import Float32

Float64 = npt.NDArray[np.float64]


def weights(ranked: Float32, temperature: float) -> Float64:
    """Softmax numerators exp((logit - highest) / temperature) of ranked logits.

    ranked: float32 [n >= 1], descending, ranked[0] > -inf, no NaN. Returns float64 [n] holding
    float32 values, 1.0 first. The highest logit is subtracted before the division so that a small
    temperature can't overflow; logits of +inf share all the weight.
    """
    top = ranked[0]
    with np.errstate(over="ignore", invalid="ignore"):
        below: Float32 = np.where(ranked == top, np.float32(0.0), ranked - top)
        scaled: Float32 = np.divide(below, np.float32(temperature))
    return exp(scaled).astype(np.float64)


def running_sum(weight: Float64) -> Float64:
    """Cumulative sums, one addition after the other (accumulate never pairs terms up)."""
    total: Float64 = np.add.accumulate(weight)
    return total


def top_p_count(weight: Float64, top_p: float) -> int:
    """Length of the shortest prefix that holds at least ``top_p`` of the weight; at least 1."""
    if top_p >= 1.0:
        return weight.size
    total = running_sum(weight)
    return min(int(np.searchsorted(total, top_p * total[-1], side="left")) + 1, weight.size)


def min_p_kept(weight: Float64, min_p: float) -> npt.NDArray[np.bool_]:
    """Which tokens are at least ``min_p`` times as likely as the first, the most likely one."""
    kept: npt.NDArray[np.bool_] = weight >= min_p * weight[0]
    return kept


def draw(weight: Float64, number: float) -> int:
    """Index drawn by the inverse of the cumulative distribution; ``number`` is in [0, 1).

    number * sum stays below the sum (numbers end at 1 - 2**-53), and the first running sum above
    the product belongs to a token of positive weight: impossible tokens are never drawn.
    """
    total = running_sum(weight)
    return int(np.searchsorted(total, number * total[-1], side="right"))
