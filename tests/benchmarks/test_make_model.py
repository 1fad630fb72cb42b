"""Files with random weights: both backends read them alike, and their numbers are sane."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from make_model import QUANTISATIONS, make_model
from random_blocks import BLOCKS, random_blocks
from shapes import SHAPES, Shape

from specla.backends import create_backend
from specla.backends.blocks import dequantise
from specla.check import compare, plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.errors import OptionError
from specla.models.gguf import GgufFile
from specla.models.load import open_model
from specla.models.qwen35.options import TargetOptions

TINY = Shape(
    4, 256, 256, 4, 2, 64, 2, 4, 64, 32, (6, 5, 5, 0),
    vocab_size=1200, n_control=3, n_unused=5, tied=False, interval=2, context_length=512,
)  # fmt: skip


@pytest.mark.parametrize("quantisation", QUANTISATIONS)
def test_both_backends_decode_the_same_bytes(tmp_path: Path, quantisation: str) -> None:
    path = tmp_path / "tiny.gguf"
    assert make_model(TINY, "tiny", quantisation, path) == path.stat().st_size
    model = open_model(path)
    prompt = model.tokenizer.encode("once upon a time", parse_special=False)
    assert model.tokenizer.decode(prompt) == "once upon a time"
    results = []
    for name in ("numpy", "numba"):
        target = model.target(create_backend(name), TargetOptions(context=64, max_nodes=4))
        results.append(plain_decode(target, prompt, 4, Sampler(SamplingParams())))
    (ours, our_state), (reference, state) = results
    assert compare(ours, reference, our_state, state, len(prompt)) == 4


def test_values_stay_sane(tmp_path: Path) -> None:
    path = tmp_path / "tiny.gguf"
    make_model(TINY, "tiny", "F32", path)
    target = open_model(path).target(create_backend("numpy"), TargetOptions(context=64))
    sequence = target.open()
    verified: Any = target.prefill([(sequence, list(range(300, 340)))], logits=True)
    logits = np.concatenate([target.logits(verified, row) for row in range(40)])
    assert 1 < logits.std() < 4
    assert abs(logits.mean()) < 0.1
    state = target.state_arrays(sequence)
    assert all(np.isfinite(array.astype(float)).all() for array in state.values())
    assert 1e-4 < state["state"].std() < 1


@pytest.mark.parametrize("kind", BLOCKS)
def test_weights_have_the_wanted_spread(kind: str) -> None:
    n_weights = 1 << 20
    raw = random_blocks(np.random.default_rng(0), kind, n_weights, 0.03)
    values = dequantise(kind, raw.reshape(1, -1), n_weights).ravel().astype(float)
    assert len(values) == n_weights
    assert math.isclose(values.std(), 0.03, rel_tol=0.01)
    assert abs(values.mean()) < 0.03 * 0.01
    # each part of a block, so that no field is filled wrongly while the whole looks right
    by_place = values.reshape(-1, 256)
    assert np.allclose(by_place.std(axis=0), 0.03, rtol=0.1)
    assert np.allclose(by_place.mean(axis=0), 0, atol=0.03 * 5 / 64)


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K"])
def test_minima_cancel_the_mean_of_every_block(kind: str) -> None:
    raw = random_blocks(np.random.default_rng(0), kind, 1 << 18, 1.0)
    blocks = dequantise(kind, raw.reshape(1, -1), 1 << 18).reshape(-1, 32)
    assert np.abs(blocks.mean(axis=1)).max() < 1


def test_a_seed_makes_one_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.gguf" for i in range(3)]
    for path, seed in zip(paths, (0, 0, 1), strict=True):
        make_model(TINY, "tiny", "Q4_K_M", path, seed)
    first, again, other = (path.read_bytes() for path in paths)
    assert first == again
    assert first != other and len(first) == len(other)


def test_mixtures_keep_more_bits_where_llama_cpp_does(tmp_path: Path) -> None:
    path = tmp_path / "demo.gguf"
    make_model(SHAPES["demo"], "demo", "Q4_K_M", path)
    kinds = {name: tensor.kind for name, tensor in GgufFile.open(path).tensors.items()}
    assert kinds["token_embd.weight"] == "Q6_K"
    wanted = {0: "Q6_K", 1: "Q4_K", 2: "Q4_K", 3: "Q6_K", 4: "Q4_K", 5: "Q4_K", 6: "Q6_K"}
    assert {layer: kinds[f"blk.{layer}.ffn_down.weight"] for layer in wanted} == wanted
    assert kinds["blk.0.attn_qkv.weight"] == kinds["blk.3.attn_v.weight"] == "Q6_K"
    assert kinds["blk.0.ffn_up.weight"] == kinds["blk.3.attn_k.weight"] == "Q4_K"
    assert kinds["blk.0.ssm_conv1d.weight"] == "F32"


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_fit_the_vocabulary_rule(name: str) -> None:
    from random_vocabulary import vocabulary_metadata

    from specla.models.tokenizer.metadata import read_metadata

    shape = SHAPES[name]
    keys = vocabulary_metadata(shape.vocab_size, shape.n_control, shape.n_unused)
    read = read_metadata({key: value.value for key, value in keys.items()}, name)
    assert len(read.tokens) == shape.vocab_size
    assert read.tokens[read.eos_id or 0] == "<|im_end|>"


@pytest.mark.parametrize("name", SHAPES)
def test_every_rotated_pair_has_an_axis(name: str) -> None:
    # llama.cpp deals the pairs out in turn; one beyond its axis's size would not be rotated at all
    shape = SHAPES[name]
    assert sum(shape.rope_sections) == shape.rotary_dim // 2
    for pair in range(shape.rotary_dim // 2):
        assert pair < 3 * shape.rope_sections[pair % 3]


def test_unknown_quantisation_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"Q3_K_S.*use one of F32"):
        make_model(TINY, "tiny", "Q3_K_S", tmp_path / "tiny.gguf")
    assert not list(tmp_path.iterdir())
