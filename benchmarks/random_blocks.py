"""Random weights straight in a file's encoding: mean 0 and a wanted standard deviation.

Nothing is quantised: the integers of a block are drawn, and the scales follow from the spread
that these integers have. Every block has a scale of its own (within a quarter of the mean), so
that a mixed-up scale shows. Integers: Q8_0 and Q4_0 as of a normal distribution, K-quants uniform.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import NormalDist

import numpy as np

# kind -> (weights per block, bytes per block)
BLOCKS = {
    "F32": (1, 4),
    "F16": (1, 2),
    "BF16": (1, 2),
    "Q8_0": (32, 34),
    "Q4_0": (32, 18),
    "Q4_K": (256, 144),
    "Q5_K": (256, 176),
    "Q6_K": (256, 210),
}
_CHUNK = 1 << 22


def random_chunks(
    rng: np.random.Generator, kind: str, n_weights: int, deviation: float
) -> Iterator[bytes]:
    """Encoded weights, a few million at a time. n_weights: whole blocks of the kind."""
    for start in range(0, n_weights, _CHUNK):
        yield random_blocks(rng, kind, min(_CHUNK, n_weights - start), deviation).tobytes()


def random_blocks(
    rng: np.random.Generator, kind: str, n_weights: int, deviation: float
) -> np.ndarray:
    """uint8 [blocks, bytes per block] of a kind in BLOCKS."""
    n_blocks = n_weights // BLOCKS[kind][0]
    return _ENCODERS[kind](rng, n_blocks, deviation).reshape(n_blocks, -1)


def _random_bytes(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return np.frombuffer(rng.bytes(int(np.prod(shape))), np.uint8).reshape(shape)


def _scales(rng: np.random.Generator, n_blocks: int, mean: float) -> np.ndarray:
    """float32 [blocks], values that float16 has."""
    spread = rng.uniform(0.75, 1.25, n_blocks) / np.sqrt(1 + 0.25**2 / 3)
    rounded: np.ndarray = (mean * spread).astype(np.float16)
    return rounded.astype(np.float32)


def _float16_bytes(values: np.ndarray) -> np.ndarray:
    return values.astype("<f2").view(np.uint8).reshape(-1, 2)


def _floats(rng: np.random.Generator, n: int, deviation: float) -> np.ndarray:
    return rng.standard_normal(n, np.float32) * np.float32(deviation)


def _f32(rng: np.random.Generator, n: int, deviation: float) -> np.ndarray:
    return _floats(rng, n, deviation).astype("<f4").view(np.uint8)


def _f16(rng: np.random.Generator, n: int, deviation: float) -> np.ndarray:
    return _floats(rng, n, deviation).astype("<f2").view(np.uint8)


def _bf16(rng: np.random.Generator, n: int, deviation: float) -> np.ndarray:
    bits = _floats(rng, n, deviation).view(np.uint32)
    return (bits >> np.uint32(16)).astype("<u2").view(np.uint8)


def _normal_integers(count: int, largest: int) -> np.ndarray:
    """int8 [count], equally likely integers that are about normal and sum to 0."""
    upper = [NormalDist().inv_cdf((i + 0.5) / count) for i in range(count // 2, count)]
    half = np.rint(np.array(upper) / upper[-1] * largest).astype(np.int8)
    return np.concatenate([-half[::-1], half])


_Q8 = _normal_integers(256, 127)
_Q4 = _normal_integers(16, 7)


def _q8_0(rng: np.random.Generator, n_blocks: int, deviation: float) -> np.ndarray:
    out = np.empty((n_blocks, 34), np.uint8)
    d = _scales(rng, n_blocks, deviation / float(_Q8.astype(float).std()))
    out[:, :2] = _float16_bytes(d)
    out[:, 2:] = _Q8.view(np.uint8)[_random_bytes(rng, n_blocks, 32)]
    return out


def _q4_0(rng: np.random.Generator, n_blocks: int, deviation: float) -> np.ndarray:
    nibbles = (_Q4 + 8).astype(np.uint8)
    pairs = (nibbles[:, None] << 4 | nibbles).ravel()
    out = np.empty((n_blocks, 18), np.uint8)
    d = _scales(rng, n_blocks, deviation / float(_Q4.astype(float).std()))
    out[:, :2] = _float16_bytes(d)
    out[:, 2:] = pairs[_random_bytes(rng, n_blocks, 16)]
    return out


def _with_minima(
    rng: np.random.Generator, n_blocks: int, deviation: float, largest: int, n_bytes: int
) -> np.ndarray:
    """Q4_K and Q5_K: w = d s q - dmin m with q uniform in 0..largest.

    The minima are near the sub-scales and dmin = d largest / 2, so that the mean cancels.
    """
    out = np.empty((n_blocks, n_bytes), np.uint8)
    sub = rng.integers(32, 63, (n_blocks, 8), np.uint8)
    minima = sub + rng.integers(-1, 2, (n_blocks, 8), np.int8).astype(np.uint8)
    uniform = np.sqrt(((largest + 1) ** 2 - 1) / 12)
    d = _scales(rng, n_blocks, deviation / uniform / np.sqrt(np.mean(np.arange(32, 63) ** 2)))
    out[:, :2] = _float16_bytes(d)
    out[:, 2:4] = _float16_bytes(d * np.float32(largest / 2))
    # six bits each: blocks 4..7 put their upper two on top of blocks 0..3
    out[:, 4:8] = sub[:, :4] | sub[:, 4:] >> 4 << 6
    out[:, 8:12] = minima[:, :4] | minima[:, 4:] >> 4 << 6
    out[:, 12:16] = sub[:, 4:] & 15 | minima[:, 4:] << 4
    out[:, 16:] = _random_bytes(rng, n_blocks, n_bytes - 16)
    return out


def _q4_k(rng: np.random.Generator, n_blocks: int, deviation: float) -> np.ndarray:
    return _with_minima(rng, n_blocks, deviation, 15, 144)


def _q5_k(rng: np.random.Generator, n_blocks: int, deviation: float) -> np.ndarray:
    return _with_minima(rng, n_blocks, deviation, 31, 176)


def _q6_k(rng: np.random.Generator, n_blocks: int, deviation: float) -> np.ndarray:
    """w = d s (q - 32), q uniform in 0..63; sub-scales of both signs cancel its mean of -1/2."""
    out = np.empty((n_blocks, 210), np.uint8)
    out[:, :192] = _random_bytes(rng, n_blocks, 192)
    signs = rng.integers(0, 2, (n_blocks, 16), np.int8) * np.int8(2) - np.int8(1)
    out[:, 192:208] = (rng.integers(64, 128, (n_blocks, 16), np.int8) * signs).view(np.uint8)
    spread = np.sqrt(np.mean((np.arange(64) - 32) ** 2) * np.mean(np.arange(64, 128) ** 2))
    out[:, 208:] = _float16_bytes(_scales(rng, n_blocks, deviation / spread))
    return out


_ENCODERS: dict[str, Callable[[np.random.Generator, int, float], np.ndarray]] = {
    "F32": _f32,
    "F16": _f16,
    "BF16": _bf16,
    "Q8_0": _q8_0,
    "Q4_0": _q4_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
}
