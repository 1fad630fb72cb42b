"""The promise on the bundled model: every adapter x sampling x budget x prefill chunk gives the
bytes of plain decoding on the reference backend: tokens, logits and committed state."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest

from specla.adapters.base import Adapter, create_adapter
from specla.adapters.combinator import Combinator
from specla.adapters.replay import ReplayAdapter
from specla.backends import create_backend
from specla.check import Trace, compare, plain_decode
from specla.core.proposal import Proposal, SequenceView
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.load import ModelFile, bundled_drafter, bundled_model, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

N_TOKENS = 16
FEATURES = (1, 3, 5, 6)
"""What the bundled drafter reads."""
# repeats itself, so that n-grams find something
PROMPT = "The big dog said hello. The big cat said hello. The big dog said"
SAMPLING = {
    "greedy": SamplingParams(),
    "sampled": SamplingParams(temperature=0.8, top_k=50, top_p=0.95, min_p=0.02, seed=11),
    "penalised": SamplingParams(
        temperature=1.0, seed=5, repetition_penalty=1.1, frequency_penalty=0.2
    ),
}


DRAFT = {"draft": str(bundled_drafter())}
DRAFTED = {
    "dspark": ("dspark", DRAFT),
    "dspark chain": ("dspark", DRAFT | {"shape": "chain"}),
    "ddtree": ("ddtree", DRAFT),
    "ddtree conditional": ("ddtree", DRAFT | {"conditional": "1"}),
    "the model itself": ("chain", {"draft": str(bundled_model())}),
    "fallback": ("fallback(suffix, dspark)", DRAFT),
}


@cache
def _model() -> ModelFile:
    return open_model(bundled_model())


@cache
def _target(chunk: int, backend: str) -> Qwen35Target:
    options = TargetOptions(context=256, max_nodes=65, chunk=chunk, features=FEATURES, poison=True)
    return _model().target(create_backend(backend), options)


@cache
def _plain(sampling: str) -> tuple[list[int], Trace, dict[str, np.ndarray]]:
    prompt = _model().tokenizer.encode(PROMPT, parse_special=False)
    trace, state = plain_decode(
        _target(512, "numpy"), prompt, N_TOKENS, Sampler(SAMPLING[sampling])
    )
    return prompt, trace, state


def _adapter(name: str, plain: Trace) -> Adapter:
    if name == "replay chain":
        return ReplayAdapter.of(plain.tokens, error=0.25, seed=3)
    if name == "replay tree":
        return ReplayAdapter.of(plain.tokens, error=0.1, branch=3, side_depth=2, seed=4)
    expression, options = DRAFTED.get(name, (name, {}))
    return create_adapter(expression, options)


@pytest.mark.parametrize("chunk", [1, 7, 512])
@pytest.mark.parametrize("budget", [1, 2, 7, 22, 64])
@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("adapter", ["ngram", "replay chain", "replay tree"])
def test_speculation_changes_no_byte(adapter: str, sampling: str, budget: int, chunk: int) -> None:
    _decode_and_compare(adapter, sampling, budget, chunk)


@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("adapter", ["ngram", "replay chain", "replay tree"])
def test_speculation_changes_no_byte_on_the_reference(adapter: str, sampling: str) -> None:
    _decode_and_compare(adapter, sampling, 22, 7, backend="numpy")


@pytest.mark.parametrize("budget", [1, 5, 22])
@pytest.mark.parametrize("sampling", SAMPLING)
@pytest.mark.parametrize("adapter", DRAFTED)
def test_draft_models_change_no_byte(adapter: str, sampling: str, budget: int) -> None:
    _decode_and_compare(adapter, sampling, budget, 7)


@pytest.mark.parametrize("adapter", ["dspark", "ddtree"])
def test_draft_models_change_no_byte_on_the_reference(adapter: str) -> None:
    _decode_and_compare(adapter, "sampled", 7, 7, backend="numpy")


class _Listening(Combinator):
    """Keeps all proposals of its inner adapter."""

    arity = (1, 1)

    def __init__(self, inner: Adapter) -> None:
        super().__init__(None, [inner])
        self.heard: list[list[Proposal]] = []

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        self.heard.append(self.parts[0].propose(list(views)))
        return self.heard[-1]


def test_both_backends_draft_the_same() -> None:
    """Trees are as reproducible as texts: equal features, equal logits, equal arithmetic."""
    prompt, _, _ = _plain("greedy")
    one, other = (_Listening(_adapter("dspark", Trace())) for _ in range(2))
    for backend, adapter in (("numpy", one), ("numba", other)):
        with Session(_target(7, backend), adapter, prompt) as session:
            list(session.generate(Request(N_TOKENS, Sampler(SamplingParams()), budget=9)))
    assert one.heard == other.heard and len(one.heard) > 1


@pytest.mark.parametrize("chunk", [1, 7, 512])
@pytest.mark.parametrize("sampling", SAMPLING)
def test_plain_rounds_change_no_byte(sampling: str, chunk: int) -> None:
    _decode_and_compare("none", sampling, 22, chunk)


def _decode_and_compare(
    adapter: str, sampling: str, budget: int, chunk: int, backend: str = "auto"
) -> None:
    prompt, plain, plain_state = _plain(sampling)
    target, trace = _target(chunk, backend), Trace()
    with Session(target, _adapter(adapter, plain), prompt) as session:
        request = Request(
            N_TOKENS, Sampler(SAMPLING[sampling]), budget=budget, on_logits=trace.on_logits
        )
        trace.tokens = [event.token for event in session.generate(request)]
        assert session.stats.refused == 0
        if adapter != "none":
            assert session.stats.rows > session.stats.rounds, "candidates must be verified"
        if adapter == "replay tree" and budget >= 7:
            assert session.stats.mean_accept_length > 1.5, "the tree must be put to use"
        state = target.state_arrays(session.sequence)
    assert compare(trace, plain, state, plain_state, len(prompt)) == N_TOKENS
