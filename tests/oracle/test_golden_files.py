"""Golden logits made by other engines: transformers (float32) and llama.cpp, on files that
llama.cpp's own converter and quantiser wrote. Agreement is within rounding, never in bytes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specla.adapters.none import NoneAdapter
from specla.backends import create_backend
from specla.backends.blocks import dequantise
from specla.backends.weights import WeightSource
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Request, Session
from specla.models.load import ModelFile, open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

OPTIONS = TargetOptions(context=256, kv="f32", poison=True)


def _logits(target: Qwen35Target, ids: np.ndarray) -> np.ndarray:
    sequence = target.open()
    verified = target.prefill([(sequence, ids.tolist())], logits=True)
    assert verified is not None
    result = target.backend.download(verified.logits)
    target.close(sequence)
    return result


def _golden(shared_data: Path, model: str) -> np.lib.npyio.NpzFile:
    return np.load(shared_data / "golden" / f"{model}.golden.npz")


def _open(shared_data: Path, name: str) -> ModelFile:
    return open_model(shared_data / "golden" / f"{name}.gguf")


@pytest.mark.parametrize("model", ["a", "b"])
def test_float32_file_agrees_with_transformers(shared_data: Path, model: str) -> None:
    golden = _golden(shared_data, model)
    target = _open(shared_data, f"{model}-f32").target(create_backend("numpy"), OPTIONS)
    ours = _logits(target, golden["ids"])
    for oracle in ("logits", "llama_f32"):
        theirs = golden[oracle]
        assert np.abs(ours - theirs).max() <= 2e-4 * np.abs(theirs).max(), oracle
        assert (ours.argmax(1) == theirs.argmax(1)).all(), oracle


@pytest.mark.parametrize("model", ["a", "b"])
def test_greedy_text_is_that_of_transformers(shared_data: Path, model: str) -> None:
    greedy = _golden(shared_data, model)["greedy"].tolist()
    target = _open(shared_data, f"{model}-f32").target(create_backend("numpy"), OPTIONS)
    with Session(target, NoneAdapter(), greedy[:16]) as session:
        request = Request(32, Sampler(SamplingParams()))
        assert [event.token for event in session.generate(request)] == greedy[16:]


def _widened(source: WeightSource) -> WeightSource:
    values = dequantise(source.kind, source.data, source.cols)
    return WeightSource(source.name, "F32", source.rows, source.cols, values.view(np.uint8))


def _dequantised(model: ModelFile) -> ModelFile:
    """The same model with every matrix as exact float32, so that only activations differ."""

    def widen(part: object) -> object:
        if isinstance(part, WeightSource):
            return _widened(part)
        if hasattr(part, "__dataclass_fields__"):
            return replace(part, **{k: widen(getattr(part, k)) for k in part.__dataclass_fields__})
        return part

    weights = model.weights
    embedding = _widened(weights.embedding)
    tied = weights.output is weights.embedding
    layers = tuple(widen(layer) for layer in weights.layers)
    output = embedding if tied else _widened(weights.output)
    return replace(
        model,
        weights=replace(weights, embedding=embedding, output=output, layers=layers),
    )


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "Q4_K_M", "Q6_K"])
def test_quantised_file_is_as_exact_as_llama_cpp(shared_data: Path, kind: str) -> None:
    """Both engines quantise activations, each in its own way, and random weights amplify that. The
    yardstick is float32 arithmetic on the exactly dequantised weights (which the tests above tie
    to transformers): we may not be further from it than llama.cpp, plus a quarter."""
    golden = _golden(shared_data, "b")
    model = _open(shared_data, f"b-{kind}")
    backend = create_backend("numpy")
    exact = _logits(_dequantised(model).target(backend, OPTIONS), golden["ids"])
    ours = np.abs(_logits(model.target(backend, OPTIONS), golden["ids"]) - exact)
    llama = np.abs(golden[f"llama_{kind}"] - exact)
    assert ours.mean() <= 1.25 * llama.mean()
    assert np.median(ours) <= 1.25 * np.median(llama)
