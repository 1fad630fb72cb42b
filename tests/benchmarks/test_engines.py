"""The engines that benchmarks compare: specla's steps are plain decoding,
and llama.cpp runs the same model.

The comparison runs where SPECLA_LLAMA_BUILD names a build folder of llama.cpp.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from engines import Specla, llama_cpp
from llama_cpp import bytes_equal, one_by_one, random_tokens
from make_model import make_model
from shapes import SHAPES

from specla.backends import create_backend
from specla.errors import OptionError
from specla.models.load import bundled_model, open_model


def test_steps_of_any_size_have_plain_decodings_logits() -> None:
    model = open_model(bundled_model())
    engine = Specla(model, create_backend("numpy"), 64, 8)
    tokens = random_tokens(model, 16)
    assert bytes_equal(Specla(model, create_backend("numpy"), 64, 32), model, tokens * 4, 2)
    plain = one_by_one(engine, tokens[:4], tokens[4:])
    engine.reset()
    assert engine.prompt(tokens[:4]) > 0
    rows = []
    for start in (4, 8, 12):
        assert len(engine.steps(tokens[start : start + 4], 4)) == 1
        rows.append(engine.logits())
    assert np.concatenate(rows).tobytes() == plain.tobytes()


def test_a_difference_is_noticed(capsys: pytest.CaptureFixture[str]) -> None:
    model = open_model(bundled_model())

    class Broken(Specla):
        def logits(self) -> np.ndarray:
            return super().logits() * np.float32(1 + 1e-6)

    engine = Broken(model, create_backend("numpy"), 64, 32)
    assert not bytes_equal(engine, model, random_tokens(model, 48), 0)
    assert "DIFFER" in capsys.readouterr().out


def test_a_folder_without_a_build_is_refused(tmp_path: Path) -> None:
    with (
        pytest.raises(OptionError, match="no build of llama"),
        llama_cpp(tmp_path, bundled_model(), 1, 64),
    ):
        pass


@pytest.mark.oracle
def test_llama_cpp_computes_the_same_model(tmp_path: Path) -> None:
    build = os.environ.get("SPECLA_LLAMA_BUILD")
    if not build:
        pytest.skip("SPECLA_LLAMA_BUILD names no build of llama.cpp")
    path = tmp_path / "demo.gguf"
    make_model(SHAPES["demo"], "demo", "F32", path)
    model = open_model(path)
    ours = Specla(model, create_backend("numpy"), 64, 16)
    tokens = random_tokens(model, 16)
    ours.steps(tokens, 16)
    with llama_cpp(Path(build), path, 1, 64) as theirs:
        for size in (16, 1):
            theirs.reset()
            assert len(theirs.steps(tokens, size)) == 16 // size
            last = theirs.logits()
            # float16 cache, another order of sums
            assert np.allclose(last, ours.logits()[-len(last) :], atol=0.01)
