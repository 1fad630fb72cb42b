"""The bundled model is an ordinary GGUF file: llama.cpp loads it and writes the same text."""

from __future__ import annotations

import pytest
from support.llama_cpp import llama_greedy, llama_tokens

from specla.adapters.none import NoneAdapter
from specla.backends import create_backend
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.load import bundled_model, open_model
from specla.models.qwen35.target import TargetOptions

pytestmark = pytest.mark.oracle

PROMPTS = ["Once upon a time", "One day, a little boy named Tim"]


@pytest.mark.parametrize("text", PROMPTS)
def test_greedy_text_is_llama_cpps_for_thirty_tokens(text: str) -> None:
    model = open_model(bundled_model())
    prompt = model.tokenizer.encode(text, parse_special=False)
    target = model.target(create_backend("numpy"), TargetOptions(context=128, kv="f32"))
    with Session(target, NoneAdapter(), prompt) as session:
        ours = [e.token for e in session.generate(Request(30, Sampler(SamplingParams())))]
    assert llama_greedy(bundled_model(), prompt, 30) == ours


@pytest.mark.parametrize(
    "text", ["Once upon a time, there was a big dog.", "1 + 2 = 3\n\n  \u00e9!"]
)
def test_tokens_are_llama_cpps(text: str) -> None:
    model = open_model(bundled_model())
    assert model.tokenizer.encode(text, parse_special=False) == llama_tokens(bundled_model(), text)
