"""What a softmax over logits needs, without writing it: maxima and sums of exponentials."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import contiguous, keep
from specla.backends.numba.softmax_code import BLOCK, exp_block, highest
from specla.backends.numba.vector_code import address

MINUS_INF = np.float32(-np.inf)
ZERO = np.float32(0.0)


@kernel("void(float32[:, :], float32[::1], float32[::1], intp, intp)")
def soft_sums(logits: Any, top_out: Any, sum_out: Any, first_unit: int, last_unit: int) -> None:
    """See Backend.soft_sums. A unit is a row."""
    scratch = np.empty(BLOCK, np.float32)
    for n in range(first_unit, last_unit):
        row = contiguous(logits[n])
        size = row.shape[0]
        whole = size // BLOCK * BLOCK
        # the block that is cut short, filled up with what adds nothing
        for i in range(whole, whole + BLOCK):
            scratch[i - whole] = row[i] if i < size else MINUS_INF
        top = highest(address(scratch), BLOCK)
        if whole:
            other = highest(address(row), whole)
            if other > top or other != other:
                top = other
        total = ZERO
        for start in range(0, size, BLOCK):
            for i in range(start, start + BLOCK):
                scratch[i - start] = row[i] if i < size else MINUS_INF
            total = total + exp_block(address(scratch), top)
        # -0.0 and +0.0 are one maximum
        top_out[n], sum_out[n] = top + ZERO, total
    keep(scratch)
