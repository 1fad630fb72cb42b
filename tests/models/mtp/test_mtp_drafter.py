"""The extra prediction layer computes what it should, and remembers only what was decided."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from models.mtp import mtp_build as build
from models.mtp.mtp_oracle import drafted, norm
from support.chosen import chosen_backend, reference
from support.texts import Text

from specla.errors import CapacityError
from specla.fuzz.failing import FailingBackend, InjectedError
from specla.models.load import open_model
from specla.models.mtp.drafter import MtpDrafter, MtpGuess
from specla.models.mtp.weights import read_own_mtp
from specla.models.qwen35.target import Qwen35Target, TargetOptions

pytestmark = pytest.mark.usefixtures("backend_name")
VOCAB, LAST = build.build.VOCAB, build.build.LAYERS - 1
keys = itertools.count()


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.write(tmp_path_factory.mktemp("mtp") / "m.gguf", build.arrays())


def made(path: Path, backend: Any = None, **options: Any) -> tuple[Qwen35Target, MtpDrafter]:
    # a layer before the last is captured too: the drafter must take the right one
    settings = {"context": 40, "chunk": 8, "slots": 2, "kv": "f32", "poison": True}
    settings |= {"features": (1, LAST), **options}
    model = open_model(path)
    target = model.target(backend or chosen_backend(), TargetOptions(**settings))
    parts = target.parts
    assert parts.extra is not None
    weights = read_own_mtp(parts.extra, parts.config)
    return target, MtpDrafter(weights, parts, target.backend, column=1)


@pytest.fixture(scope="module")
def pair(path: Path, backend_name: str) -> tuple[Qwen35Target, MtpDrafter]:
    return made(path)


def random_text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


def fresh(target: Qwen35Target, drafter: MtpDrafter, tokens: list[int], depth: int) -> list[Any]:
    """What is drafted for a text that was never seen before."""
    text = Text(target, tokens, key=next(keys))
    try:
        return list(drafter.draft(text.view(), depth))
    finally:
        drafter.close(text.key)
        text.close()


@pytest.mark.parametrize("length", [1, 2, 9, 30])
def test_it_computes_what_an_independent_layer_computes(
    pair: tuple[Qwen35Target, MtpDrafter], length: int
) -> None:
    target, drafter = pair
    held, tokens = build.arrays(), random_text(length)
    text = Text(target, tokens, key=next(keys))
    view = text.view()
    features = target.backend.download(view.features(0, length - 1))[:, 1]
    hidden = norm(features.astype(np.float64), held["output_norm.weight"])
    wanted = drafted(held, tokens, hidden, 5)
    found = list(drafter.draft(view, 5))
    assert [g.token for g in found] == wanted[0]
    np.testing.assert_allclose([g.log_prob for g in found], wanted[1], atol=1e-4)
    np.testing.assert_allclose([g.confidence for g in found], wanted[2], atol=1e-4)
    drafter.close(text.key)
    text.close()


@settings(max_examples=10)
@given(
    start=st.integers(1, 12),
    rounds=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4)), min_size=1, max_size=6),
    seed=st.integers(0, 99),
)
def test_drafts_are_a_function_of_the_decided_text(
    pair: tuple[Qwen35Target, MtpDrafter],
    start: int,
    rounds: list[tuple[int, int]],
    seed: int,
) -> None:
    """Whatever was drafted, and however much of it was asked for, before."""
    target, drafter = pair
    tokens = random_text(40, seed)
    text = Text(target, tokens[:start], key=next(keys))
    for decided, depth in rounds:
        list(itertools.islice(drafter.draft(text.view(), 4), depth))
        text.tokens = tokens[: min(len(text.tokens) + decided, 36)]
    found = list(drafter.draft(text.view(), 4))
    assert found == list(drafter.draft(text.view(), 4)), "asked twice"
    drafter.close(text.key)
    text.close()
    assert found == fresh(target, drafter, text.tokens, 4)


def test_any_chunking_gives_the_same(path: Path) -> None:
    tokens = random_text(30)
    results = [fresh(*made(path, chunk=chunk), tokens, 4) for chunk in (1, 7, 29, 64)]
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("kv", ["f16", "f32"])
def test_the_same_bits_as_the_reference(path: Path, kv: str) -> None:
    tokens = random_text(20)
    assert fresh(*made(path, kv=kv), tokens, 4) == fresh(*made(path, reference(), kv=kv), tokens, 4)


def test_texts_do_not_mix(pair: tuple[Qwen35Target, MtpDrafter]) -> None:
    target, drafter = pair
    texts = [Text(target, random_text(9, seed), key=next(keys)) for seed in (1, 2)]
    for i in range(6):
        text = texts[i % 2]
        found = list(drafter.draft(text.view(), 3))
        other = made_again(target, drafter, text.tokens)
        assert found == other
        text.tokens += random_text(2, i)
    for text in texts:
        drafter.close(text.key)
        text.close()


def made_again(target: Qwen35Target, drafter: MtpDrafter, tokens: list[int]) -> list[MtpGuess]:
    """As ``fresh``, on another drafter of the same target: all slots of the first are taken."""
    parts = target.parts
    assert parts.extra is not None
    twin = MtpDrafter(read_own_mtp(parts.extra, parts.config), parts, target.backend, column=1)
    alone = Qwen35Target(open_model(parts.extra.gguf.path).weights, target.backend, target.options)
    text = Text(alone, tokens)
    return list(twin.draft(text.view(), 3))


def test_a_key_that_comes_again_with_another_text(pair: tuple[Qwen35Target, MtpDrafter]) -> None:
    target, drafter = pair
    key = next(keys)
    for seed, length in ((1, 20), (2, 20), (3, 9)):
        text = Text(target, random_text(length, seed), key=key)
        found = list(drafter.draft(text.view(), 3))
        text.close()
        drafter.close(next(keys))
        assert found == fresh(target, drafter, text.tokens, 3)
    drafter.close(key)


def test_the_end_of_the_context(pair: tuple[Qwen35Target, MtpDrafter]) -> None:
    target, drafter = pair
    for length in (36, 39, 40):
        text = Text(target, random_text(length), key=next(keys))
        for _ in range(2):  # asked again, the root's row is there already
            # positions length - 1 .. 39 can be computed
            assert len(list(drafter.draft(text.view(), 9))) == 41 - length
        drafter.close(text.key)
        text.close()


def test_no_more_texts_than_slots_and_nothing_leaks(path: Path) -> None:
    target, drafter = made(path)
    pages = drafter._store.pages.pool
    for _ in range(3):
        for key in (1, 2):
            drafter.open(key)
        with pytest.raises(CapacityError, match="all 2 sequence slots are in use"):
            drafter.open(3)
        text = Text(target, random_text(35), key=1)
        assert len(list(drafter.draft(text.view(), 4))) == 4
        assert pages.free < pages.n_pages
        text.close()
        drafter.open(1)
        for key in (1, 2, 3):
            drafter.close(key)
        assert pages.free == pages.n_pages and len(drafter._store._free_slots) == 2


@pytest.mark.parametrize("names", [("kv_write",), ("attention",), ("rms_norm",), ("upload",)])
def test_a_failure_costs_nothing_but_the_round(path: Path, names: tuple[str, ...]) -> None:
    backend = FailingBackend(chosen_backend())
    target, drafter = made(path, backend)
    tokens = random_text(34)
    wanted = fresh(target, drafter, tokens, 4)
    failures = 0
    for n in (0, 3, 11, 24):
        text = Text(target, tokens[:20], key=next(keys))
        list(drafter.draft(text.view(), 4))
        text.tokens = tokens
        view = text.view()
        backend.arm(n, names=names)
        try:
            list(drafter.draft(view, 4))
        except InjectedError:
            failures += 1
        backend.disarm()
        assert list(drafter.draft(view, 4)) == wanted
        drafter.close(text.key)
        text.close()
    assert failures


def test_a_copy_of_the_targets_matrices_is_not_loaded_again(path: Path, tmp_path: Path) -> None:
    from specla.models.mtp.weights import open_mtp

    target, drafter = made(path)
    parts, held = target.parts, build.layer_only(build.arrays())
    same = MtpDrafter(
        open_mtp(build.write(tmp_path / "a.gguf", held)), parts, target.backend, column=1
    )
    assert same._embedding is parts.embedding and same._output is parts.output
    held["token_embd.weight"] = held["token_embd.weight"] + 1
    other = MtpDrafter(
        open_mtp(build.write(tmp_path / "b.gguf", held)), parts, target.backend, column=1
    )
    assert other._embedding is not parts.embedding and other._output is parts.output
    text = Text(target, random_text(12))
    view = text.view()
    assert list(same.draft(view, 3)) == list(drafter.draft(view, 3)) != list(other.draft(view, 3))
