"""Every tensor of a converted checkpoint against expectations written out head by head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from models.convert import hf_build as build

from specla.errors import FileFormatError
from specla.models.convert import convert_qwen35
from specla.models.gguf import GgufFile
from specla.models.qwen35.config import read_config
from specla.models.qwen35.weights import GdnWeights, read_weights

SHAPES: dict[str, dict[str, Any]] = {
    "grouped values": {},
    "one value head per key head": {"linear_num_value_heads": 2},
    "one key head": {"linear_num_key_heads": 1, "linear_num_value_heads": 4},
    "one head": {"linear_num_key_heads": 1, "linear_num_value_heads": 1},
    "odd sizes": {
        "hidden_size": 40, "intermediate_size": 24, "linear_key_head_dim": 12,
        "linear_value_head_dim": 20, "linear_conv_kernel_dim": 3, "num_hidden_layers": 7,
    },
    "untied": {"tie_word_embeddings": False, "num_hidden_layers": 1},
    "irregular layers": {
        "num_hidden_layers": 3,
        "layer_types": ["full_attention", "linear_attention", "full_attention"],
    },
}  # fmt: skip


def converted(
    tmp_path: Path,
    c: dict[str, Any],
    tensors: dict[str, np.ndarray],
    outtype: str = "f32",
    **kwargs: Any,
) -> GgufFile:
    options = {key: kwargs.pop(key) for key in ("dtype", "shards") if key in kwargs}
    folder = build.write_checkpoint(tmp_path / "hf", c, tensors, **options)
    kwargs.setdefault("tokenizer", None)
    done = convert_qwen35(folder, tmp_path / "m.gguf", outtype, overwrite=True, **kwargs)
    gguf = GgufFile.open(done.path)
    assert done.n_tensors == len(gguf.tensors) and done.n_bytes == gguf.n_bytes
    return gguf


def tiled(values: np.ndarray, n_key: int, n_value: int, axis: int = 0) -> np.ndarray:
    """Values grouped by head along an axis, with the heads in tiled order."""
    heads = np.split(values, n_value, axis=axis)
    order = []
    for head in range(n_value):
        key_head, copy = head % n_key, head // n_key
        order.append(heads[key_head * (n_value // n_key) + copy])
    return np.concatenate(order, axis=axis)


def expected(c: dict[str, Any], tensors: dict[str, np.ndarray], prefix: str) -> dict[str, Any]:
    """GGUF name -> float32 values, from the documented differences between the two formats."""
    n_key, n_value = c["linear_num_key_heads"], c["linear_num_value_heads"]
    n_qk = 2 * n_key * c["linear_key_head_dim"]
    found = {
        "token_embd.weight": tensors[f"{prefix}embed_tokens.weight"],
        "output_norm.weight": tensors[f"{prefix}norm.weight"] + 1,
    }
    if "lm_head.weight" in tensors:
        found["output.weight"] = tensors["lm_head.weight"]
    blocks = {f"{prefix}layers.{layer}.": layer for layer in range(c["num_hidden_layers"])}
    blocks["mtp.layers.0."] = c["num_hidden_layers"]
    same = {
        "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
        "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
        "self_attn.o_proj": "attn_output", "linear_attn.norm": "ssm_norm",
    }  # fmt: skip
    shifted = {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    }  # fmt: skip
    rows = {"in_proj_z": "attn_gate", "in_proj_a": "ssm_alpha", "in_proj_b": "ssm_beta"}
    for name, values in tensors.items():
        start = next((start for start in blocks if name.startswith(start)), None)
        if start is None:
            continue
        block, part = f"blk.{blocks[start]}", name.removeprefix(start)
        base = part.removesuffix(".weight")
        linear = base.removeprefix("linear_attn.")
        if base in same:
            found[f"{block}.{same[base]}.weight"] = values
        elif base in shifted:
            found[f"{block}.{shifted[base]}.weight"] = values + 1
        elif linear in rows:
            found[f"{block}.{rows[linear]}.weight"] = tiled(values, n_key, n_value)
        elif linear in ("in_proj_qkv", "conv1d"):
            values = values[:, 0] if linear == "conv1d" else values
            values = np.concatenate([values[:n_qk], tiled(values[n_qk:], n_key, n_value)])
            stored = "ssm_conv1d" if linear == "conv1d" else "attn_qkv"
            found[f"{block}.{stored}.weight"] = values
        elif linear == "out_proj":
            found[f"{block}.ssm_out.weight"] = tiled(values, n_key, n_value, axis=1)
        elif linear == "dt_bias":
            found[f"{block}.ssm_dt.bias"] = tiled(values, n_key, n_value)
        elif linear == "A_log":
            found[f"{block}.ssm_a"] = tiled(-np.exp(values.astype(np.float64)), n_key, n_value)
    extra = f"blk.{c['num_hidden_layers']}.nextn"
    for name, stored, shift in (
        ("mtp.fc", "eh_proj", 0),
        ("mtp.pre_fc_norm_embedding", "enorm", 1),
        ("mtp.pre_fc_norm_hidden", "hnorm", 1),
        ("mtp.norm", "shared_head_norm", 1),
    ):
        if f"{name}.weight" in tensors:
            found[f"{extra}.{stored}.weight"] = tensors[f"{name}.weight"] + shift
    return found


def check_values(gguf: GgufFile, wanted: dict[str, np.ndarray]) -> None:
    assert set(gguf.tensors) == set(wanted)
    for name, values in wanted.items():
        found = gguf.tensors[name]
        assert found.shape == values.shape, name
        if name.endswith("ssm_a"):
            np.testing.assert_allclose(found.to_float32(), values, rtol=2e-7)
        else:
            np.testing.assert_array_equal(found.to_float32(), values, err_msg=name)


@pytest.mark.parametrize("shape", SHAPES)
def test_f32_in_odd_shapes(tmp_path: Path, shape: str) -> None:
    c = build.config(**SHAPES[shape])
    tensors = build.arrays(c)
    gguf = converted(tmp_path, c, tensors)
    check_values(gguf, expected(c, tensors, "model."))
    config = read_config(gguf)
    assert config.attention_layers == tuple(k == "full_attention" for k in c["layer_types"])
    assert (config.d_model, config.d_ff) == (c["hidden_size"], c["intermediate_size"])
    assert (config.key_dim, config.value_dim) == (
        c["linear_key_head_dim"],
        c["linear_value_head_dim"],
    )
    assert config.rotary_dim == 4 and config.rope_base == 1e7 and config.eos_ids == (2,)
    assert config.tied_output == c["tie_word_embeddings"]
    assert len(read_weights(gguf, config).layers) == c["num_hidden_layers"]


@pytest.mark.parametrize("dtype", ["F16", "BF16"])
@pytest.mark.parametrize("shards", [1, 3])
def test_half_precision_and_sharded_checkpoints(tmp_path: Path, dtype: str, shards: int) -> None:
    c = build.config()
    tensors = build.arrays(c, 1)
    gguf = converted(tmp_path, c, tensors, dtype=dtype, shards=shards)
    check_values(gguf, expected(c, tensors, "model."))


@pytest.mark.parametrize("prefix", ["model.language_model.", "language_model.model."])
def test_the_multimodal_wrapper(tmp_path: Path, prefix: str) -> None:
    c = build.config(tie_word_embeddings=False)
    tensors = build.arrays(c, 2, prefix=prefix)
    if prefix.startswith("language_model"):
        tensors["language_model.lm_head.weight"] = tensors.pop("lm_head.weight")
    vision = {"model.visual.patch_embed.weight": np.ones((2, 2), dtype=np.float32)}
    wrapper = {"model_type": "qwen3_5", "text_config": c, "tie_word_embeddings": False}
    folder = build.write_checkpoint(tmp_path / "hf", wrapper, tensors | vision)
    done = convert_qwen35(folder, tmp_path / "m.gguf", "f32", tokenizer=None)
    assert any("1 tensors of the vision tower" in note for note in done.notes)
    tensors["lm_head.weight"] = tensors.pop("language_model.lm_head.weight", None) if (
        "language_model.lm_head.weight" in tensors
    ) else tensors["lm_head.weight"]  # fmt: skip
    check_values(GgufFile.open(done.path), expected(c, tensors, prefix))


class TestPredictionLayer:
    def test_is_written_as_one_more_block(self, tmp_path: Path) -> None:
        c = build.config(mtp_num_hidden_layers=1)
        tensors = build.arrays(c, 3, mtp=True)
        gguf = converted(tmp_path, c, tensors)
        check_values(gguf, expected(c, tensors, "model."))
        assert gguf.metadata.get_int("qwen35.block_count") == 6
        assert gguf.metadata.get_int("qwen35.nextn_predict_layers") == 1
        recurrent = gguf.metadata.get_bools("qwen35.attention.recurrent_layers")
        assert recurrent == [True, True, True, False, True, False]
        config = read_config(gguf)
        assert (config.n_layers, config.n_mtp_layers) == (5, 1)

    def test_has_the_names_and_shapes_of_llama_cpp(self, shared_data: Path, tmp_path: Path) -> None:
        golden = GgufFile.open(shared_data / "golden_draft" / "a-with-mtp.gguf")
        c = build.config(
            vocab_size=320, hidden_size=96, intermediate_size=160, num_hidden_layers=6,
            head_dim=32, linear_key_head_dim=32, linear_value_head_dim=32,
            tie_word_embeddings=False, max_position_embeddings=1024,
        )  # fmt: skip
        c["rope_parameters"] |= {"partial_rotary_factor": 0.5, "mrope_section": [3, 3, 2]}
        gguf = converted(tmp_path, c, build.arrays(c, mtp=True))
        assert {name: source.shape for name, source in gguf.tensors.items()} == {
            name: source.shape for name, source in golden.tensors.items()
        }
        ours = {key: gguf.metadata[key] for key in gguf.metadata if key.startswith("qwen35.")}
        theirs = {key: golden.metadata[key] for key in golden.metadata if key in ours}
        assert ours == theirs
        for key in ours:
            assert gguf.metadata.type_name(key) == golden.metadata.type_name(key)
        assert [
            key for key in golden.metadata if key.startswith("qwen35.") and key not in ours
        ] == []

    def test_can_be_left_out(self, tmp_path: Path) -> None:
        c = build.config(mtp_num_hidden_layers=1)
        tensors = build.arrays(c, 3, mtp=True)
        folder = build.write_checkpoint(tmp_path / "hf", c, tensors)
        done = convert_qwen35(folder, tmp_path / "m.gguf", "f32", tokenizer=None, mtp=False)
        assert done.notes == ("left out 15 tensors of the extra prediction layer",)
        plain = {name: values for name, values in tensors.items() if not name.startswith("mtp.")}
        check_values(GgufFile.open(done.path), expected(c, plain, "model."))
        assert done.config.n_mtp_layers == 0

    def test_absence_is_noted(self, tmp_path: Path) -> None:
        c = build.config(mtp_num_hidden_layers=1)
        folder = build.write_checkpoint(tmp_path / "hf", c, build.arrays(c))
        done = convert_qwen35(folder, tmp_path / "m.gguf", "f32", tokenizer=None)
        assert "holds no extra prediction layer" in done.notes[0]
        assert done.config.n_mtp_layers == 0


@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0", "q4_0"])
def test_encodings(tmp_path: Path, outtype: str) -> None:
    c = build.config(intermediate_size=72)
    rng = np.random.default_rng(4)
    shapes = build.shapes(c)
    tensors = {n: rng.standard_normal(s).astype(np.float32) for n, s in shapes.items()}
    gguf = converted(tmp_path, c, tensors, outtype)
    kinds = {"f16": "F16", "bf16": "BF16", "q8_0": "Q8_0", "q4_0": "Q4_0"}
    plain = expected(c, tensors, "model.")
    for name, source in gguf.tensors.items():
        small = len(source.shape) == 1 or "conv1d" in name
        kind = "F32" if small else kinds[outtype]
        if kind in ("Q8_0", "Q4_0") and source.cols % 32:
            kind = "F16"
        assert source.kind == kind, name
        if name.endswith("ssm_a"):
            continue
        ggml = GGMLQuantizationType[kind]
        values = np.asarray(plain[name], dtype=np.float32)
        wanted = np.asarray(dequantize(quantize(values, ggml), ggml)).reshape(source.shape)
        np.testing.assert_array_equal(source.to_float32(), wanted, err_msg=name)
    down = gguf.tensor("blk.0.ffn_down.weight").kind
    assert down == ("F16" if outtype in ("q8_0", "q4_0") else kinds[outtype])


def test_chunks_do_not_change_the_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    c = build.config()
    tensors = build.arrays(c, 5)
    first = converted(tmp_path, c, tensors, "q8_0").path.read_bytes()
    monkeypatch.setattr("specla.models.convert.encode._CHUNK", 200)
    assert converted(tmp_path, c, tensors, "q8_0").path.read_bytes() == first


def test_progress_reaches_the_total(tmp_path: Path) -> None:
    c = build.config()
    seen: list[tuple[int, int]] = []
    gguf = converted(
        tmp_path, c, build.arrays(c), progress=lambda done, total: seen.append((done, total))
    )
    assert seen[-1][0] == seen[-1][1] == sum(source.n_bytes for source in gguf.tensors.values())
    assert seen == sorted(seen)


def test_values_use_the_key_head_that_the_checkpoint_meant(tmp_path: Path) -> None:
    """The tag of each value head's key head ends where the runtime looks for it."""
    c = build.config(linear_num_key_heads=3, linear_num_value_heads=12)
    tensors = build.arrays(c)
    for name in tensors:
        if name.endswith("dt_bias"):
            tensors[name] = np.repeat(np.arange(3, dtype=np.float32), 4)
    gguf = converted(tmp_path, c, tensors)
    layer = read_weights(gguf, read_config(gguf)).layers[0]
    assert isinstance(layer, GdnWeights)
    assert [int(tag) for tag in layer.dt_bias] == [head % 3 for head in range(12)]


def test_f16_overflow_is_one_line(tmp_path: Path) -> None:
    c = build.config()
    tensors = build.arrays(c)
    tensors["model.layers.0.mlp.up_proj.weight"][0, 0] = 1e6
    for outtype in ("f16", "q8_0"):
        with pytest.raises(FileFormatError, match="holds 1e\\+06, too large for"):
            converted(tmp_path, c, tensors, outtype)
    assert converted(tmp_path, c, tensors, "bf16").tensors
