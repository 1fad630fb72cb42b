"""Plain decoding, remembered from test to test."""

from __future__ import annotations

import functools

import numpy as np

from specla.check import Trace, plain_decode
from specla.core.sampling import Sampler
from specla.models.qwen35.target import Qwen35Target


@functools.cache
def plain_run(
    target: Qwen35Target, prompt: tuple[int, ...], count: int, sampler: Sampler
) -> tuple[Trace, dict[str, np.ndarray]]:
    """``specla.check.plain_decode``, once per setting; nobody may change what it returns."""
    return plain_decode(target, prompt, count, sampler)
