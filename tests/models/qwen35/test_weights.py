"""qwen35 tensors: names, shapes, layouts, and the one-line refusals."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.gguf.gguf_build import Tensor, tensor
from models.qwen35 import qwen35_build as build

from specla.backends.blocks import dequantise
from specla.backends.weights import WeightSource
from specla.errors import FileFormatError, UnsupportedModelError
from specla.models.gguf import GgufFile
from specla.models.qwen35.config import read_config
from specla.models.qwen35.weights import (
    AttentionWeights,
    GdnWeights,
    Qwen35Weights,
    read_weights,
)


def weights_of(path: Path, held: dict[str, Tensor], **changes: object) -> Qwen35Weights:
    gguf = build.write(path / "m.gguf", build.metadata() | changes, held)
    return read_weights(gguf, read_config(gguf))


def values(weight: WeightSource) -> np.ndarray:
    return dequantise(weight.kind, weight.data, weight.cols)


def test_every_tensor_lands_in_its_place(tmp_path: Path) -> None:
    arrays = build.arrays()
    found = weights_of(tmp_path, {name: tensor(array) for name, array in arrays.items()})
    assert found.output is found.embedding
    np.testing.assert_array_equal(values(found.embedding), arrays["token_embd.weight"])
    np.testing.assert_array_equal(found.output_norm, arrays["output_norm.weight"])
    assert len(found.layers) == build.LAYERS
    gdn_names = {
        "qkv": "attn_qkv.weight", "z": "attn_gate.weight", "alpha": "ssm_alpha.weight",
        "beta": "ssm_beta.weight", "out": "ssm_out.weight", "a": "ssm_a",
        "dt_bias": "ssm_dt.bias", "norm": "ssm_norm.weight",
    }  # fmt: skip
    attention_names = {
        "q": "attn_q.weight", "k": "attn_k.weight", "v": "attn_v.weight",
        "out": "attn_output.weight", "q_norm": "attn_q_norm.weight", "k_norm": "attn_k_norm.weight",
    }  # fmt: skip
    for index, layer in enumerate(found.layers):
        assert isinstance(layer, AttentionWeights if index == 3 else GdnWeights)
        names = attention_names if index == 3 else gdn_names
        names = names | {"attn_norm": "attn_norm.weight", "ffn_norm": "post_attention_norm.weight"}
        for field, name in names.items():
            held = getattr(layer, field)
            held = values(held) if isinstance(held, WeightSource) else held
            assert held.dtype == np.float32
            np.testing.assert_array_equal(held, arrays[f"blk.{index}.{name}"])
        for field in ("gate", "up", "down"):
            held = values(getattr(layer.ffn, field))
            np.testing.assert_array_equal(held, arrays[f"blk.{index}.ffn_{field}.weight"])


def test_convolution_taps_are_rows_oldest_first(tmp_path: Path) -> None:
    arrays = build.arrays()
    found = weights_of(tmp_path, {name: tensor(array) for name, array in arrays.items()})
    layer = found.layers[0]
    assert isinstance(layer, GdnWeights)
    assert layer.conv.shape == (build.TAPS, build.CHANNELS) and layer.conv.flags.c_contiguous
    stored = arrays["blk.0.ssm_conv1d.weight"]
    for tap in range(build.TAPS):
        np.testing.assert_array_equal(layer.conv[tap], stored[:, tap])


def test_matrices_are_views_of_the_file(shared_data: Path) -> None:
    gguf = GgufFile.open(shared_data / "golden" / "b-Q4_K_M.gguf")
    found = read_weights(gguf, read_config(gguf))
    assert found.embedding.kind == "Q6_K" and found.output is found.embedding
    layer = found.layers[0]
    assert isinstance(layer, GdnWeights) and layer.z.kind == "Q4_K"
    assert not layer.z.data.flags.owndata and not layer.z.data.flags.writeable
    assert layer.z.data.shape == (256, 144)


def test_prediction_layers_and_unknown_tensors_are_skipped(shared_data: Path) -> None:
    plain = GgufFile.open(shared_data / "golden" / "a-f32.gguf")
    extra = GgufFile.open(shared_data / "golden_draft" / "a-with-mtp.gguf")
    assert len(extra.tensors) > len(plain.tensors)
    found = read_weights(extra, read_config(extra))
    assert len(found.layers) == 6 and found.output is not found.embedding


def test_a_file_of_prediction_layers_only_is_refused(shared_data: Path) -> None:
    gguf = GgufFile.open(shared_data / "golden_draft" / "b-mtp.gguf")
    with pytest.raises(FileFormatError, match=r"tensor blk\.0\.\S+ is missing"):
        read_weights(gguf, read_config(gguf))


@pytest.mark.parametrize("name", sorted(build.shapes()))
def test_a_missing_tensor_is_named(tmp_path: Path, name: str) -> None:
    held = build.tensors()
    del held[name]
    changes = {"qwen35.vocab_size": build.VOCAB}
    with pytest.raises(FileFormatError, match=rf"m\.gguf: tensor {name} is missing"):
        weights_of(tmp_path, held, **changes)


@pytest.mark.parametrize("name", sorted(set(build.shapes()) - {"token_embd.weight"}))
def test_a_wrong_shape_is_named(tmp_path: Path, name: str) -> None:
    held = build.tensors()
    shape = build.shapes()[name]
    wrong = (*shape[:-1], shape[-1] + 1)
    held[name] = tensor(np.zeros(wrong, dtype=np.float32))
    with pytest.raises(FileFormatError) as caught:
        weights_of(tmp_path, held)
    expected = f"tensor {name} has the shape {list(wrong)}, the model needs {list(shape)}"
    assert expected in str(caught.value)


def test_a_transposed_matrix_is_refused(tmp_path: Path) -> None:
    held = build.tensors()
    shape = build.shapes()["blk.0.ffn_up.weight"]
    held["blk.0.ffn_up.weight"] = tensor(np.zeros(shape[::-1], dtype=np.float32))
    with pytest.raises(FileFormatError, match=r"blk\.0\.ffn_up\.weight has the shape"):
        weights_of(tmp_path, held)


def test_leading_ones_make_no_difference(tmp_path: Path) -> None:
    arrays = build.arrays()
    held = {name: tensor(array) for name, array in arrays.items()}
    for name in ("blk.0.ssm_conv1d.weight", "blk.0.attn_norm.weight", "output_norm.weight"):
        held[name] = tensor(arrays[name][None])
    found = weights_of(tmp_path, held)
    np.testing.assert_array_equal(found.output_norm, arrays["output_norm.weight"])
    assert found.output_norm.shape == (build.WIDTH,)


def test_a_matrix_of_one_row_may_be_stored_as_a_vector(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # llama.cpp drops trailing dimensions of one, so one value head makes alpha a vector
    for name, value in {"KEY_HEADS": 1, "VALUE_HEADS": 1, "INNER": 7, "CHANNELS": 17}.items():
        monkeypatch.setattr(build, name, value)
    arrays = build.arrays()
    held = {name: tensor(array) for name, array in arrays.items()}
    held["blk.0.ssm_alpha.weight"] = tensor(arrays["blk.0.ssm_alpha.weight"][0])
    found = weights_of(tmp_path, held)
    layer = found.layers[0]
    assert isinstance(layer, GdnWeights) and (layer.alpha.rows, layer.alpha.cols) == (1, 24)
    np.testing.assert_array_equal(values(layer.alpha), arrays["blk.0.ssm_alpha.weight"])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_vectors_must_be_finite(tmp_path: Path, bad: float) -> None:
    arrays = build.arrays()
    arrays["blk.2.ssm_a"][1] = bad
    with pytest.raises(FileFormatError, match=r"tensor blk\.2\.ssm_a holds a NaN"):
        weights_of(tmp_path, {name: tensor(array) for name, array in arrays.items()})


def test_a_type_without_conversion_is_refused_at_load(tmp_path: Path) -> None:
    held = build.tensors()
    shape = build.shapes()["blk.1.ffn_gate.weight"]
    held["blk.1.ffn_gate.weight"] = Tensor(shape, 26, bytes(4 * shape[0] * shape[1]))
    with pytest.raises(UnsupportedModelError, match=r"blk\.1\.ffn_gate\.weight': type I32"):
        weights_of(tmp_path, held)


@pytest.mark.parametrize("suffix", [".scale", ".weight.scale"])
def test_separate_scales_are_refused_not_ignored(tmp_path: Path, suffix: str) -> None:
    held = build.tensors()
    held[f"blk.1.ffn_gate{suffix}"] = tensor(np.ones(1, dtype=np.float32))
    with pytest.raises(UnsupportedModelError, match=r"blk\.1\.ffn_gate\S* scales blk\.1\.ffn_gate"):
        weights_of(tmp_path, held)


def test_half_precision_vectors_are_widened(tmp_path: Path) -> None:
    arrays = build.arrays()
    held = {name: tensor(array) for name, array in arrays.items()}
    held["output_norm.weight"] = tensor(arrays["output_norm.weight"], "F16")
    found = weights_of(tmp_path, held)
    expected = arrays["output_norm.weight"].astype(np.float16).astype(np.float32)
    np.testing.assert_array_equal(found.output_norm, expected)
