"""The chain adapter: what it drafts, that nothing leaks or lasts, refusals, whole runs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapters.drafted_runs import Corrupting, lossless_run
from hypothesis import given, settings
from hypothesis import strategies as st
from models.mtp import mtp_build as build
from support.chosen import chosen_backend
from support.texts import Text

from specla.adapters.base import create_adapter
from specla.adapters.chain import ChainAdapter, ChainOptions
from specla.binding import bind
from specla.core.sampling import SamplingParams
from specla.engine import Session
from specla.errors import CapacityError, LifecycleError, OptionError
from specla.fuzz.failing import FailingBackend, InjectedError
from specla.models.load import bundled_model, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

pytestmark = pytest.mark.usefixtures("backend_name")
VOCAB = build.build.VOCAB
TRUNK = {"block_count": build.build.LAYERS, "nextn_predict_layers": 0}


def model_file(path: Path, seed: int, **changes: Any) -> Path:
    return build.write(path, build.trunk_only(build.arrays(seed)), **(TRUNK | changes))


@pytest.fixture(scope="module")
def target_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_file(tmp_path_factory.mktemp("chain") / "target.gguf", 0)


@pytest.fixture(scope="module")
def other_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return model_file(tmp_path_factory.mktemp("chain") / "other.gguf", 1)


def load(path: Path, backend: Any = None, **options: Any) -> Qwen35Target:
    settings = {"context": 64, "chunk": 16, "max_nodes": 9, "slots": 2, "poison": True, **options}
    return open_model(path).target(backend or chosen_backend(), TargetOptions(**settings))


def bound(target: Qwen35Target, draft: Path, **options: Any) -> ChainAdapter:
    adapter = ChainAdapter(ChainOptions(str(draft), **options))
    bind(adapter, "chain", target)
    return adapter


@pytest.fixture(scope="module")
def pair(
    target_file: Path, other_file: Path, backend_name: str
) -> tuple[Qwen35Target, ChainAdapter]:
    target = load(target_file)
    return target, bound(target, other_file)


def greedy(path: Path, tokens: list[int], count: int) -> tuple[list[int], list[float]]:
    """The plain greedy continuation, and the log-probability of each of its tokens."""
    target = load(path, context=len(tokens) + count, chunk=64)
    sequence, found, log_probs = target.open(), [], []
    for _ in range(count):
        new = [*tokens, *found][sequence.length :]
        verified = target.prefill([(sequence, new)], logits=True)
        assert verified is not None
        row = target.logits(verified, len(new) - 1).astype(np.float64)
        found.append(int(row.argmax()))
        log_probs.append(float(row.max() - np.log(np.exp(row - row.max()).sum()) - row.max()))
    return found, log_probs


def free(adapter: ChainAdapter) -> tuple[int, int]:
    """Free slots and pages of the draft."""
    assert adapter._draft is not None
    store = adapter._draft.target.store
    return len(store._free_slots), store.pages.pool.free


def random_text(length: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, VOCAB, length).tolist()


# -- what it drafts --------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 5, 40])
def test_it_drafts_the_drafts_own_greedy_continuation(
    pair: tuple[Qwen35Target, ChainAdapter], other_file: Path, length: int
) -> None:
    target, adapter = pair
    text = Text(target, random_text(length))
    (found,) = adapter.propose([text.view()])
    tokens, log_probs = greedy(other_file, text.tokens, 4)
    assert list(found.tokens) == tokens
    np.testing.assert_allclose(found.log_probs, log_probs, atol=1e-5)
    adapter.close(text.view())
    text.close()


keys = itertools.count(1000)


@settings(max_examples=10)
@given(
    start=st.integers(1, 20),
    rounds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 6)), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
def test_drafts_are_a_function_of_the_decided_text(
    pair: tuple[Qwen35Target, ChainAdapter],
    start: int,
    rounds: list[tuple[int, int]],
    seed: int,
) -> None:
    """Whatever was drafted before; the state after it is that of the text, byte for byte."""
    target, adapter = pair
    draft, tokens = adapter._draft, random_text(64, seed)
    assert draft is not None
    before = free(adapter)
    text = Text(target, tokens[:start], key=next(keys))
    for decided, depth in rounds:
        adapter.propose([text.view(max_depth=depth)])
        text.tokens = tokens[: len(text.tokens) + decided]
    (found,) = adapter.propose([text.view()])
    assert adapter.propose([text.view()]) == [found], "asked twice"
    again = Text(target, text.tokens, key=next(keys))
    assert adapter.propose([again.view()]) == [found]
    states = [draft._texts[key].state for key in (text.key, again.key)]
    assert states[0].length == len(text.tokens)
    ours, theirs = (draft.target.state_arrays(state) for state in states)
    assert all(ours[name].tobytes() == theirs[name].tobytes() for name in ours)
    for one in (text, again):
        adapter.close(one.view())
        one.close()
    assert free(adapter) == before


def test_a_draft_ends_before_the_first_token_below_p_min(
    target_file: Path, other_file: Path
) -> None:
    target = load(target_file)
    text = Text(target, random_text(9))
    (whole,) = bound(target, other_file, depth=6).propose([text.view()])
    assert whole.log_probs is not None and len(whole.tokens) == 6
    shares = [math.exp(value) for value in whole.log_probs]
    for p_min in sorted(shares):
        adapter = bound(target, other_file, depth=6, p_min=min(p_min * 1.001, 1.0))
        wanted = next(i for i, share in enumerate(shares) if share < p_min * 1.001)
        before = free(adapter)
        (found,) = adapter.propose([text.view()])
        assert list(found.tokens) == list(whole.tokens)[:wanted]
        adapter.close(text.view())
        assert free(adapter) == before


def test_limits_of_a_round(pair: tuple[Qwen35Target, ChainAdapter]) -> None:
    target, adapter = pair
    text = Text(target, random_text(7))
    for budget, max_depth, wanted in ((8, 8, 4), (2, 8, 2), (8, 1, 1), (8, 0, 0)):
        (found,) = adapter.propose([text.view(budget, max_depth)])
        assert len(found.tokens) == wanted
    adapter.close(text.view())
    text.close()


def test_the_end_of_the_drafts_context(target_file: Path, tmp_path: Path) -> None:
    target = load(target_file)
    adapter = bound(target, model_file(tmp_path / "short.gguf", 1, context_length=20))
    text = Text(target, random_text(17))
    for length, wanted in ((17, 4), (19, 2), (20, 1), (21, 0), (30, 0)):
        text.tokens = random_text(30)[:length]
        assert len(adapter.propose([text.view()])[0].tokens) == wanted


# -- room and failures -----------------------------------------------------------------------------


def test_no_more_texts_than_slots_and_nothing_leaks(target_file: Path, other_file: Path) -> None:
    target = load(target_file)
    adapter = bound(target, other_file)
    everything = free(adapter)
    texts = [Text(target, random_text(30, key), key) for key in (1, 2)]
    for _ in range(3):
        for text in texts:
            adapter.open(text.view())
            assert len(adapter.propose([text.view()])[0].tokens) == 4
            assert free(adapter)[1] < everything[1]
        third = Text.__new__(Text)
        third.__dict__ |= vars(texts[0]) | {"key": 3}
        with pytest.raises(CapacityError, match="2 sequences are drafted already"):
            adapter.open(third.view())
        assert len(adapter.propose([texts[1].view()])[0].tokens) == 4
        adapter.open(texts[0].view())
        for text in (*texts, third):
            adapter.close(text.view())
        assert free(adapter) == everything


@pytest.mark.parametrize("names", [("gdn_prefill",), ("attention",), ("argmax",), ("copy",)])
@pytest.mark.parametrize("when", ["after", "wreck"])
def test_a_failure_costs_nothing_but_the_round(
    target_file: Path, other_file: Path, names: tuple[str, ...], when: str
) -> None:
    backend = FailingBackend(chosen_backend())
    target = load(target_file, backend)
    adapter = bound(target, other_file)
    everything, tokens = free(adapter), random_text(34)
    text = Text(target, tokens)
    view = text.view()
    wanted = adapter.propose([view])
    failures = 0
    for n in (0, 2, 5, 9):
        text.tokens = tokens[:20]
        adapter.open(view)
        adapter.propose([text.view()])
        backend.arm(n, when, names=names)
        try:
            adapter.propose([view])
        except InjectedError:
            failures += 1
        backend.disarm()
        assert adapter.propose([view]) == wanted
    assert failures
    adapter.close(view)
    assert free(adapter) == everything


# -- whole runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("depth", [1, 4])
def test_the_target_as_its_own_draft_is_accepted_whole(target_file: Path, depth: int) -> None:
    target, prompt = load(target_file), random_text(5)
    adapter = ChainAdapter(ChainOptions(str(target_file), depth=depth))
    rounds = 20 // (depth + 1)
    _, stats = lossless_run(target, adapter, prompt, rounds * (depth + 1))
    assert stats.accept_lengths == {depth + 1: rounds}
    assert stats.refused == stats.adapter_errors == 0


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_forced_rejections_are_lossless(
    target_file: Path, other_file: Path, temperature: float
) -> None:
    target, prompt = load(target_file), random_text(6)
    params = SamplingParams(temperature=temperature, seed=5)
    results = []
    for draft in (target_file, other_file):
        inner = ChainAdapter(ChainOptions(str(draft)))
        tokens, stats = lossless_run(target, Corrupting(inner, VOCAB), prompt, 20, params)
        assert stats.refused == stats.adapter_errors == 0
        assert stats.rows > stats.emitted, "some were rejected"
        assert free(inner)[0] == 3
        results.append(tokens)
    assert results[0] == results[1]


def test_the_bundled_model(backend_name: str) -> None:
    target = load(bundled_model(), context=64, poison=False)
    prompt = open_model(bundled_model()).tokenizer.encode("Once upon a time", parse_special=False)
    inner = ChainAdapter(ChainOptions(str(bundled_model())))
    count = 40 if backend_name == "numba" else 10
    tokens, stats = lossless_run(target, inner, prompt, count)
    assert stats.mean_accept_length == 5 and stats.refused == 0
    forced = Corrupting(inner, target.config.vocab_size)
    assert lossless_run(target, forced, prompt, count)[0] == tokens


def test_sessions_in_turns_share_an_adapter(target_file: Path, other_file: Path) -> None:
    target, adapter = load(target_file), ChainAdapter(ChainOptions(str(other_file)))
    sessions = [Session(target, adapter, random_text(3 + seed, seed)) for seed in (1, 2)]
    draft = adapter._draft
    for length in range(6):
        for session in sessions:
            (found,) = adapter.propose([session._view(8, 8)])
            assert list(found.tokens) == greedy(other_file, list(session.tokens), 4)[0]
            session.extend(random_text(1 + length, length))
    assert free(adapter)[0] == 1
    for session in sessions:
        session.close()
    assert adapter._draft is draft and free(adapter)[0] == 3


# -- options and refusals --------------------------------------------------------------------------


def test_options(other_file: Path) -> None:
    found = create_adapter("chain", {"draft": str(other_file), "depth": "7", "p_min": "0.5"})
    assert found.options == ChainOptions(str(other_file), 7, 0.5)
    with pytest.raises(OptionError, match="needs the option draft"):
        create_adapter("chain", {})
    for name, value in (("depth", "0"), ("p_min", "-1"), ("p_min", "nan")):
        with pytest.raises(OptionError, match=f"option {name} is"):
            create_adapter("chain", {"draft": str(other_file), name: value})


def test_it_must_be_bound_first(pair: tuple[Qwen35Target, ChainAdapter], other_file: Path) -> None:
    adapter, text = ChainAdapter(ChainOptions(str(other_file))), Text(pair[0], [1, 2])
    for call in (adapter.open, lambda view: adapter.propose([view])):
        with pytest.raises(LifecycleError, match="drafts only after bind"):
            call(text.view())
    adapter.close(text.view())
    text.close()


def token_list(size: int = VOCAB, first: str = "a") -> dict[str, Any]:
    return {"tokenizer.ggml.tokens": [f"{first}{i}" for i in range(size)]}


def test_drafts_of_another_vocabulary(tmp_path: Path, target_file: Path) -> None:
    target = load(model_file(tmp_path / "t.gguf", 0, **token_list()))
    other = model_file(tmp_path / "o.gguf", 1, **token_list(first="b"))
    with pytest.raises(OptionError, match="has another token list than the target"):
        bound(target, other)
    held = build.trunk_only(build.arrays())
    for name in ("token_embd.weight", "output.weight"):
        held[name] = np.concatenate([held[name], held[name][:5]])
    larger = build.write(tmp_path / "l.gguf", held, **TRUNK)
    with pytest.raises(OptionError, match=f"has {VOCAB + 5} tokens, the target only {VOCAB}"):
        bound(target, larger)
    # files without a list can only be believed
    assert bound(target, target_file)._draft is not None


def test_a_text_with_tokens_that_the_draft_does_not_know(target_file: Path, tmp_path: Path) -> None:
    held = build.trunk_only(build.arrays())
    for name in ("token_embd.weight", "output.weight"):
        held[name] = held[name][: VOCAB - 1]
    target = load(target_file)
    adapter = bound(target, build.write(tmp_path / "s.gguf", held, **TRUNK))
    text = Text(target, [1, 2, 3])
    assert len(adapter.propose([text.view()])[0].tokens) == 4
    for token in (VOCAB - 1, 4):
        text.tokens.append(token)
        assert len(adapter.propose([text.view()])[0].tokens) == 0


def bad_files(folder: Path) -> Iterator[tuple[Path, str]]:
    yield model_file(folder / "o.gguf", 0, **{"general.architecture": "llama"}), "'llama'"
    held = build.trunk_only(build.arrays())
    del held["blk.1.attn_norm.weight"]
    yield build.write(folder / "h.gguf", held, **TRUNK), r"blk\.1\.attn_norm\.weight is missing"
    yield build.write(folder / "l.gguf", build.layer_only(build.arrays())), "is missing"
    (folder / "text").write_text("no model")
    yield folder / "text", "GGUF"
    yield folder / "missing", "can't open"
    yield folder, "is a folder"


def test_files_that_are_no_draft(tmp_path: Path) -> None:
    for file, reason in bad_files(tmp_path):
        with pytest.raises(OptionError, match=reason) as caught:
            create_adapter("chain", {"draft": str(file)})
        assert str(caught.value).startswith("adapter 'chain': draft ")
        assert "\n" not in str(caught.value)
