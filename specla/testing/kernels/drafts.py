"""Kernels of draft models."""

from __future__ import annotations

from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench
from specla.testing.kernels.choices import random_logits


@kernel_cases.add("soft_sums")
def soft_sums(b: Bench) -> None:
    """Largest logit of a row, and the sum of exponentials behind it."""
    logits, n, _ = random_logits(b)
    b.backend.soft_sums(logits, b.result("largest", n), b.result("sum", n))


@kernel_cases.add("block_conv")
def block_conv(b: Bench) -> None:
    """Convolution along a block, with coefficients of each row's own."""
    n, taps, groups, side = b.pick(1, 2, 7), b.pick(1, 2, 4), b.pick(1, 2, 4), b.pick(0, 1)
    width = groups * b.pick(1, 5, 32)
    x, dynamic = b.floats("x", n, width), b.floats("dynamic", n, 2 * taps * groups)
    base, out = b.floats("base", 2, taps, width), b.result("out", n, width)
    b.backend.block_conv(x, dynamic, base, side, out)
