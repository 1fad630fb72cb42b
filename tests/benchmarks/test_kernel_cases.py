"""Every kernel of the benchmark gives the reference's bytes, call after call."""

from __future__ import annotations

import numpy as np
import pytest
from kernel_cases import Maker
from shapes import Shape

from specla.backends import create_backend

TINY = Shape(
    4, 64, 96, 2, 1, 32, 1, 2, 32, 16, (4, 2, 2, 0),
    vocab_size=300, n_control=3, n_unused=5, interval=2, context_length=512,
)  # fmt: skip


@pytest.mark.parametrize("rows", [1, 3])
def test_both_backends_leave_the_same_bytes(rows: int) -> None:
    ours = Maker(create_backend("numba"), TINY, rows, context=70, sequences=2).cases()
    reference = Maker(create_backend("numpy"), TINY, rows, context=70, sequences=2).cases()
    assert len({case.name for case in ours}) == len(ours) == 17
    for case, other in zip(ours, reference, strict=True):
        assert case.name == other.name
        # the second call is another layer's, the fifth another sequence's
        for _ in range(5):
            case.run()
            other.run()
        for a, b in zip(case.results(), other.results(), strict=True):
            assert np.isfinite(a.astype(float)).all(), case.name
            assert a.tobytes() == b.tobytes(), case.name


def test_bytes_of_the_recurrence_are_those_of_its_state() -> None:
    (case,) = (c for c in Maker(create_backend("numpy"), TINY, 1).cases() if "gdn_v" in c.name)
    state = 4 * 2 * 32 * 32
    assert 2 * state < case.n_bytes < 2.5 * state
