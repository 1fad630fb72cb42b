"""Choices from logits, with the ties and NaNs that decide about them."""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.testing.kernels import kernel_cases
from specla.testing.kernels.bench import Bench

FEW = np.array([-np.inf, np.nan, 0.0, -0.0, 1.0, 2.0, np.inf, -3e38], dtype=np.float32)


def random_logits(b: Bench) -> tuple[Any, int, int]:
    """Logits, their rows and the vocabulary; half of the time of few values, so that they tie."""
    n, vocab = b.pick(1, 2, 5), b.pick(1, 7, 40, 1000)
    host = b.values(n, vocab)
    if b.pick(True, False):
        host = b.rng.choice(FEW[: int(b.rng.integers(1, 9))], (n, vocab))
    return b.input("logits", host), n, vocab


@kernel_cases.add("argmax")
def argmax(b: Bench) -> None:
    logits, n, _ = random_logits(b)
    b.backend.argmax(logits, b.result("out", n, dtype="int32"))


@kernel_cases.add("top_k")
def top_k(b: Bench) -> None:
    logits, n, vocab = random_logits(b)
    k = min(vocab, b.pick(1, 2, 7, 50))
    b.backend.top_k(logits, k, b.result("values", n, k), b.result("ids", n, k, dtype="int32"))
