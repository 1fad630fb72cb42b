"""The attention kernels read a drafter's plans as meant, on all backends with equal bytes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.arrays import equal, filled
from support.chosen import CPU_BACKENDS, computing_on
from support.chosen import chosen_backend as backend
from support.drafters import LUCEBOX, write_drafter

from specla.backends.pools import KvShape
from specla.models.dflash.config import DraftConfig
from specla.models.dflash.keys import Dialect
from specla.models.dflash.load import open_drafter
from specla.models.dflash.plans import AppendPlans, BlockPlans
from specla.models.dflash.sight import SightPair

CONTEXT, SLOTS_OF_POOL = 200, 2


@cache
def _config(arch: str) -> DraftConfig:
    with TemporaryDirectory() as folder:
        path = write_drafter(Path(folder) / "a.gguf", arch=arch, window=4, sliding=(True, False))
        return open_drafter(path).config


def _visible(config: DraftConfig, is_sliding: bool, query: int, key: int, length: int) -> bool:
    if config.causal and key > query:
        return False
    if not is_sliding or config.window is None:
        return True
    if config.dialect is Dialect.LLAMA_CPP:
        return query - key < config.window
    return length - config.window <= key <= query


@settings(max_examples=40)
@given(
    length=st.integers(0, CONTEXT - 1),
    slots=st.integers(1, 16),
    window=st.integers(1, 90),
    causal=st.booleans(),
    arch=st.sampled_from(["dflash", LUCEBOX]),
    heads=st.sampled_from([(1, 1), (4, 2), (6, 2), (3, 3)]),
    dim=st.sampled_from([8, 10, 64]),
    dtype=st.sampled_from(["f16", "f32"]),
    seed=st.integers(0, 999),
)
def test_attention(
    length: int,
    slots: int,
    window: int,
    causal: bool,
    arch: str,
    heads: tuple[int, int],
    dim: int,
    dtype: str,
    seed: int,
) -> None:
    config = replace(_config(arch), window=window, causal=causal)
    rng = np.random.default_rng(seed)
    slot = seed % SLOTS_OF_POOL
    n = length + slots
    k, v = (rng.standard_normal((n, heads[1], dim)).astype(np.float32) for _ in range(2))
    q = rng.standard_normal((slots, heads[0], dim)).astype(np.float32)
    shape = KvShape(SLOTS_OF_POOL, 1, 8, heads[1], dim, CONTEXT + 16, dtype)
    tokens = np.zeros(slots, np.int32)
    results = []
    for name in CPU_BACKENDS:
        with computing_on(name):
            pool = backend().kv_pool(shape)
            backend().poison(pool.key)
            backend().poison(pool.value)
            backend().upload(rng.permutation(8).astype(np.int32).reshape(2, 4), pool.page_table)
            append = AppendPlans(backend(), CONTEXT)
            plans = BlockPlans(backend(), SightPair(config, slots), CONTEXT)
            if length:
                plan, _ = append.fill(slot, 0, length)
                backend().kv_write(k[:length], v[:length], pool, 0, plan)
            plans.fill(slot, length, tokens)
            backend().kv_write(k[length:], v[length:], pool, 0, plans.block)
            outs = []
            shape_of_step, layers = plans.launched_for(n)
            assert shape_of_step.n_keys == n, "steps of other lengths are other steps"
            for sight in layers:
                assert sight.n_keys == n > backend().download(sight.position).max()
                out = filled(slots, heads[0], dim)
                backend().attention(q, pool, 0, sight, dim**-0.5, out)
                outs.append(out)
            results.append(outs)
    for is_sliding, *found in zip(config.sliding, *results, strict=True):
        assert all(equal(found[0], other) for other in found[1:])
        wanted = _expected(config, is_sliding, length, q, k, v)
        np.testing.assert_allclose(found[0], wanted, atol=2e-2 if dtype == "f16" else 1e-5)


def _expected(
    config: DraftConfig,
    is_sliding: bool,
    length: int,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
) -> np.ndarray:
    out = np.empty(q.shape)
    group = q.shape[1] // k.shape[1]
    for row in range(len(q)):
        keys = [
            key for key in range(len(k)) if _visible(config, is_sliding, length + row, key, length)
        ]
        for h in range(q.shape[1]):
            scores = k[keys, h // group].astype(np.float64) @ q[row, h] / np.sqrt(q.shape[2])
            p = np.exp(scores - scores.max())
            out[row, h] = p @ v[keys, h // group] / p.sum()
    return out
