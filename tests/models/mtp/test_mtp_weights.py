"""Tensors of extra prediction layers: where they come from, and the one-line refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.mtp import mtp_build as build

from specla.backends.blocks import dequantise
from specla.backends.weights import WeightSource
from specla.errors import FileFormatError, UnsupportedModelError
from specla.models.load import open_model
from specla.models.mtp.weights import MtpWeights, open_mtp, read_own_mtp


def values(weight: WeightSource | None) -> np.ndarray:
    assert weight is not None
    return dequantise(weight.kind, weight.data, weight.cols)


def own(path: Path) -> MtpWeights:
    model = open_model(path)
    assert model.weights.extra is not None
    return read_own_mtp(model.weights.extra, model.config)


def test_every_tensor_of_the_layer_lands_in_its_place(tmp_path: Path) -> None:
    held = build.arrays()
    for weights in (
        own(build.write(tmp_path / "whole.gguf", held)),
        open_mtp(build.write(tmp_path / "layer.gguf", build.layer_only(held))),
    ):
        for found, name in (
            (values(weights.fc), "nextn.eh_proj"),
            (weights.embedding_norm, "nextn.enorm"),
            (weights.hidden_norm, "nextn.hnorm"),
            (weights.output_norm, "nextn.shared_head_norm"),
            (values(weights.layer.q), "attn_q"),
            (values(weights.layer.ffn.down), "ffn_down"),
            (weights.layer.ffn_norm, "post_attention_norm"),
        ):
            np.testing.assert_array_equal(found, held[f"{build.BLOCK}.{name}.weight"])


def test_a_targets_own_layer_shares_embedding_and_output(tmp_path: Path) -> None:
    held = build.arrays()
    found = own(build.write(tmp_path / "m.gguf", held))
    assert found.embedding is None and found.output is None


def test_a_file_of_its_own_brings_embedding_and_output(tmp_path: Path) -> None:
    held = build.layer_only(build.arrays())
    found = open_mtp(build.write(tmp_path / "m.gguf", held))
    np.testing.assert_array_equal(values(found.embedding), held["token_embd.weight"])
    np.testing.assert_array_equal(values(found.output), held["output.weight"])
    del held["output.weight"]
    tied = open_mtp(build.write(tmp_path / "tied.gguf", held))
    assert tied.output is tied.embedding is not None
    del held["token_embd.weight"]
    bare = open_mtp(build.write(tmp_path / "bare.gguf", held, vocab_size=build.build.VOCAB))
    assert bare.output is bare.embedding is None


@pytest.mark.parametrize("whole", [True, False])
def test_the_layers_own_matrices_come_first(tmp_path: Path, whole: bool) -> None:
    held = build.arrays()
    held[f"{build.BLOCK}.nextn.embed_tokens.weight"] = held["token_embd.weight"] + 1
    held[f"{build.BLOCK}.nextn.shared_head_head.weight"] = held["output.weight"] + 1
    path = build.write(tmp_path / "m.gguf", held if whole else build.layer_only(held))
    found = own(path) if whole else open_mtp(path)
    np.testing.assert_array_equal(values(found.embedding), held["token_embd.weight"] + 1)
    np.testing.assert_array_equal(values(found.output), held["output.weight"] + 1)


def test_the_models_last_norm_serves_a_layer_without_one(tmp_path: Path) -> None:
    held = build.arrays()
    del held[f"{build.BLOCK}.nextn.shared_head_norm.weight"]
    found = own(build.write(tmp_path / "m.gguf", held))
    np.testing.assert_array_equal(found.output_norm, held["output_norm.weight"])


def test_a_file_without_a_layer_is_refused(tmp_path: Path) -> None:
    held = build.trunk_only(build.arrays())
    path = build.write(
        tmp_path / "m.gguf", held, block_count=build.build.LAYERS, nextn_predict_layers=0
    )
    with pytest.raises(UnsupportedModelError, match=r"holds no extra prediction layer.*convert"):
        open_mtp(path)


@pytest.mark.parametrize("name", ["nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "attn_q"])
def test_a_missing_or_misshapen_tensor_is_named(tmp_path: Path, name: str) -> None:
    full = f"{build.BLOCK}.{name}.weight"
    held = build.layer_only(build.arrays())
    array = held.pop(full)
    with pytest.raises(FileFormatError, match=f"tensor {full} is missing"):
        open_mtp(build.write(tmp_path / "m.gguf", held))
    with pytest.raises(FileFormatError, match=f"tensor {full} has the shape"):
        open_mtp(build.write(tmp_path / "n.gguf", held | {full: array[:-1]}))


def test_a_nan_in_a_norm_is_named(tmp_path: Path) -> None:
    held = build.layer_only(build.arrays())
    held[f"{build.BLOCK}.nextn.hnorm.weight"][3] = np.nan
    with pytest.raises(FileFormatError, match=r"hnorm\.weight holds a NaN"):
        open_mtp(build.write(tmp_path / "m.gguf", held))
