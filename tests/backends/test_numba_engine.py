"""Whole forward passes and decodings on the compiled backend: the reference's bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.forests import random_tree
from support.tiny import VOCAB, tiny_target

from specla.adapters.replay import ReplayAdapter
from specla.backends.numba.backend import NumbaBackend
from specla.backends.numpy.backend import NumpyBackend
from specla.check import plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.load import bundled_model, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions


def same_state(one: Qwen35Target, other: Qwen35Target, sequences: list[Any]) -> None:
    for mine, theirs in sequences:
        arrays, wanted = one.state_arrays(mine), other.state_arrays(theirs)
        for name in wanted:
            assert equal(arrays[name], wanted[name]), name


@pytest.mark.parametrize("kind", ["F32", "BF16", "Q8_0", "Q4_0"])
@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_a_life(kind: str, kv: str) -> None:
    """Prefill, verify over random forests, commit, discard, fork, flush: two targets in step."""
    rng = np.random.default_rng(7)
    targets = [
        tiny_target(1, backend=backend, kind=kind, kv=kv, pattern="ggag")
        for backend in (NumbaBackend(), NumpyBackend())
    ]
    pairs = [tuple(t.open() for t in targets) for _ in range(2)]
    for _ in range(12):
        runs = [rng.integers(0, VOCAB, int(rng.integers(1, 6))).tolist() for _ in pairs]
        results = [
            target.prefill([(p[i], run) for p, run in zip(pairs, runs, strict=True)], logits=True)
            for i, target in enumerate(targets)
        ]
        assert equal(results[0].logits, results[1].logits), "prefill"
        trees = [random_tree(rng, int(rng.integers(1, 10)), VOCAB) for _ in pairs]
        results = [
            target.verify([(p[i], tree) for p, tree in zip(pairs, trees, strict=True)])
            for i, target in enumerate(targets)
        ]
        assert equal(results[0].logits, results[1].logits), "verify"
        assert equal(targets[0].argmax(results[0]), targets[1].argmax(results[1]))
        for one, other in zip(
            targets[0].top_k(results[0], 7), targets[1].top_k(results[1], 7), strict=True
        ):
            assert equal(one, other)
        for pair, tree in zip(pairs, trees, strict=True):
            path = [int(rng.integers(len(tree)))]
            while tree.parents[path[0]] >= 0:
                path.insert(0, tree.parents[path[0]])
            for target, sequence in zip(targets, pair, strict=True):
                target.commit(sequence, path)
        if rng.random() < 0.3:
            same_state(*targets, pairs)
    same_state(*targets, pairs)


def _decode(backend: Any, wanted: list[int], prompt: list[int]) -> tuple[list[int], dict[str, Any]]:
    target = open_model(bundled_model()).target(backend, TargetOptions(context=256, poison=True))
    adapter = ReplayAdapter.of(wanted, error=0.2, branch=3, side_depth=2, seed=4)
    with Session(target, adapter, prompt) as session:
        request = Request(24, Sampler(SamplingParams(temperature=0.8, top_k=50, seed=3)))
        tokens = [event.token for event in session.generate(request)]
        return tokens, target.state_arrays(session.sequence)


def test_bundled_model() -> None:
    """Speculative decoding on either backend is plain decoding on the reference."""
    model = open_model(bundled_model())
    prompt = model.tokenizer.encode("Once upon a time", parse_special=False)
    sampler = Sampler(SamplingParams(temperature=0.8, top_k=50, seed=3))
    plain = model.target(NumpyBackend(), TargetOptions(context=256))
    trace, state = plain_decode(plain, prompt, 24, sampler)
    tokens, arrays = _decode(NumbaBackend(), trace.tokens, prompt)
    assert tokens == trace.tokens
    for name, wanted in state.items():
        assert equal(arrays[name], wanted), name


@pytest.mark.parametrize("name", ["a-f32", "b-f32", "b-Q8_0", "b-Q4_0", "b-Q4_K_M", "b-Q6_K"])
def test_golden_files(shared_data: Path, name: str) -> None:
    """Logits of every position of the golden text."""
    golden = np.load(shared_data / "golden" / f"{name[0]}.golden.npz")
    ids = golden["ids"][:24].tolist()
    model = open_model(shared_data / "golden" / f"{name}.gguf")
    logits = []
    for backend in (NumbaBackend(), NumpyBackend()):
        target = model.target(backend, TargetOptions(context=128, poison=True))
        result = target.prefill([(target.open(), ids)], logits=True)
        assert result is not None
        logits.append(backend.download(result.logits))
    assert equal(*logits)
