"""The bundled model on every backend: the reference's bytes."""

from __future__ import annotations

import numpy as np
import pytest

from specla.adapters.replay import ReplayAdapter
from specla.backends import backends, create_backend
from specla.check import Trace, compare, plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.load import bundled_model, open_model
from specla.models.qwen35.target import TargetOptions

PROMPT = "Once upon a time, there was a big, big dog. The dog liked to"
OPTIONS = TargetOptions(context=256, max_nodes=65, chunk=7, poison=True)


ELSEWHERE = ("numpy", "triton")
"""The reference, and what needs a GPU or, interpreted, an hour: tests/interpreted and tests/ptx."""


@pytest.mark.parametrize("backend", [name for name in backends.names() if name not in ELSEWHERE])
@pytest.mark.parametrize(
    "params",
    [SamplingParams(), SamplingParams(temperature=0.9, top_p=0.95, seed=2)],
    ids=["greedy", "sampled"],
)
def test_trees_on_any_backend_are_plain_decoding_on_the_reference(
    backend: str, params: SamplingParams
) -> None:
    model = open_model(bundled_model())
    prompt = model.tokenizer.encode(PROMPT, parse_special=False)
    sampler = Sampler(params)
    plain, state = plain_decode(model.target(create_backend("numpy"), OPTIONS), prompt, 32, sampler)
    target, trace = model.target(create_backend(backend), OPTIONS), Trace()
    adapter = ReplayAdapter.of(plain.tokens, error=0.1, branch=3, side_depth=2, seed=4)
    with Session(target, adapter, prompt) as session:
        request = Request(32, sampler, budget=22, on_logits=trace.on_logits)
        trace.tokens = [event.token for event in session.generate(request)]
        assert session.stats.mean_accept_length > 1.5
        ours: dict[str, np.ndarray] = target.state_arrays(session.sequence)
    assert compare(trace, plain, ours, state, len(prompt)) == 32
