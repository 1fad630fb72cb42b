"""The keyed random numbers: pinned to the published generator, not to a NumPy release."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.core.sampling import DRAFT_STREAM, TARGET_STREAM, uniform
from specla.errors import OptionError

MASK = 2**64 - 1
WORD = st.integers(0, MASK)


def philox(counter: tuple[int, ...], key: tuple[int, ...]) -> tuple[int, ...]:
    """Philox4x64-10 after the paper's definition, in Python integers: an independent oracle."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        a, b = 0xD2E7470EE14C6C93 * c0, 0xCA5A826395121157 * c2
        c0, c1, c2, c3 = (b >> 64) ^ c1 ^ k0, b & MASK, (a >> 64) ^ c3 ^ k1, a & MASK
        k0, k1 = (k0 + 0x9E3779B97F4A7C15) & MASK, (k1 + 0xBB67AE8584CAA73B) & MASK
    return c0, c1, c2, c3


@pytest.mark.parametrize(
    ("counter", "key", "block"),
    [
        (
            (0, 0, 0, 0),
            (0, 0),
            (0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B),
        ),
        (
            (MASK,) * 4,
            (MASK,) * 2,
            (0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0),
        ),
    ],
)
def test_oracle_gives_the_published_answers(
    counter: tuple[int, ...], key: tuple[int, ...], block: tuple[int, ...]
) -> None:
    assert philox(counter, key) == block


@given(seed=WORD, position=WORD, stream=WORD)
def test_equals_the_published_generator(seed: int, position: int, stream: int) -> None:
    # block position + 1, as a 256-bit counter
    counter = ((position + 1) & MASK, (position + 1) >> 64, 0, 0)
    word = philox(counter, (seed, stream))[0]
    assert uniform(seed, position, stream) == (word >> 11) / 2**53


GOLDEN = [
    (0, 0, 0, "0x1.7a5d3204726c0p-7"),
    (0, 1, 0, "0x1.0137e64510730p-1"),
    (0, 0, 1, "0x1.a06ff187f343ap-1"),
    (42, 7, 0, "0x1.a1310b80dca3ep-2"),
    (42, 7, 1, "0x1.babc3027d6745p-1"),
    (MASK, MASK, 0, "0x1.c47a2826ab6cbp-1"),
]


@pytest.mark.parametrize(("seed", "position", "stream", "number"), GOLDEN)
def test_golden_numbers(seed: int, position: int, stream: int, number: str) -> None:
    assert uniform(seed, position, stream) == float.fromhex(number)


def test_call_order_and_other_generators_do_not_matter() -> None:
    keys = [(seed, position, s) for seed in range(3) for position in range(20) for s in (0, 1)]
    first = {key: uniform(*key) for key in keys}
    random.Random(1).shuffle(keys)
    np.random.seed(5)
    for key in keys:
        np.random.random()
        assert uniform(*key) == first[key]
    # nothing collides: neither neighbouring positions, nor seeds, nor the two streams
    assert len(set(first.values())) == len(first)
    assert TARGET_STREAM != DRAFT_STREAM


def test_range_and_mean() -> None:
    numbers = np.array([uniform(1, position) for position in range(4000)])
    assert numbers.min() >= 0.0 and numbers.max() < 1.0
    # standard error of the mean: 1 / sqrt(12 * 4000) = 0.0046
    assert abs(numbers.mean() - 0.5) < 4 * 0.0046
    # neighbouring positions are uncorrelated: standard error 1 / sqrt(4000)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / 4000**0.5


@pytest.mark.parametrize("bad", [(-1, 0, 0), (0, -1, 0), (0, 0, -1), (2**64, 0, 0), (0, 2**64, 0)])
def test_out_of_range_is_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(OptionError, match=r"give a whole number from 0 to"):
        uniform(*bad)
