"""Kernels of draft models. They are tried where the protocol has them."""

from __future__ import annotations

from typing import Any

from specla.backends.base import Backend
from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench
from specla.testing.kernels.choices import random_logits


def soft_sums(b: Bench) -> None:
    """Largest logit of a row, and the sum of exponentials behind it."""
    kernels: Any = b.backend
    logits, n, _ = random_logits(b)
    kernels.soft_sums(logits, b.result("largest", n), b.result("sum", n))


def block_conv(b: Bench) -> None:
    """Convolution along a block, with coefficients of each row's own."""
    kernels: Any = b.backend
    n, taps, groups, side = b.pick(1, 2, 7), b.pick(1, 2, 4), b.pick(1, 2, 4), b.pick(0, 1)
    width = groups * b.pick(1, 5, 32)
    x, dynamic = b.floats("x", n, width), b.floats("dynamic", n, 2 * taps * groups)
    kernels.block_conv(
        x, dynamic, b.floats("base", 2, taps, width), side, b.result("out", n, width)
    )


for _case in (soft_sums, block_conv):
    if _case.__name__ in Backend.__abstractmethods__:
        kernel_cases.add(_case.__name__)(_case)
