"""Bad checkpoints and options: one line each, and nothing under the output's name."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.convert import hf_build as build

from specla.errors import FileFormatError, OptionError, SpeclaError, UnsupportedModelError
from specla.models.convert import convert_qwen35
from specla.models.convert.safetensors import read_safetensors


def checkpoint(folder: Path, **changes: Any) -> Path:
    c = build.config()
    return build.write_checkpoint(folder / "hf", c | changes, build.arrays(c))


def fails(
    folder: Path, kind: type[SpeclaError] = FileFormatError, outtype: str = "f32", **kwargs: Any
) -> str:
    output = folder.parent / "out" / "m.gguf"
    output.parent.mkdir(exist_ok=True)
    kwargs.setdefault("tokenizer", None)
    with pytest.raises(kind) as caught:
        convert_qwen35(folder, output, outtype, **kwargs)
    assert "\n" not in str(caught.value)
    assert list(output.parent.iterdir()) == []
    return str(caught.value)


CONFIG_CASES: dict[str, tuple[dict[str, Any], type[SpeclaError], str]] = {
    "another model": ({"model_type": "llama"}, UnsupportedModelError, "model_type 'llama'"),
    "experts": ({"model_type": "qwen3_5_moe"}, UnsupportedModelError, "'qwen3_5_moe'"),
    "no model type": ({"model_type": None}, UnsupportedModelError, "model_type None"),
    "a missing key": ({"hidden_size": None}, FileFormatError, "hidden_size is missing"),
    "a string for a number": ({"hidden_size": "64"}, FileFormatError, "hidden_size is '64'"),
    "a bool for a number": ({"head_dim": True}, FileFormatError, "head_dim is True"),
    "a negative size": ({"num_hidden_layers": -1}, FileFormatError, "num_hidden_layers is -1"),
    "an absurd size": ({"vocab_size": 2**40}, FileFormatError, f"vocab_size is {2**40}"),
    "a wrong size": (
        {"hidden_size": 65},
        FileFormatError,
        "has the shape [300, 64], the configuration needs [300, 65]",
    ),
    "uneven heads": (
        {"num_key_value_heads": 3},
        FileFormatError,
        "num_attention_heads is 4; a multiple of num_key_value_heads (3)",
    ),
    "uneven value heads": (
        {"linear_num_key_heads": 4},
        FileFormatError,
        "linear_num_value_heads is 6; a multiple",
    ),
    "biases": ({"attention_bias": True}, UnsupportedModelError, "attention_bias True"),
    "another activation": ({"hidden_act": "gelu"}, UnsupportedModelError, "hidden_act 'gelu'"),
    "no gate": ({"attn_output_gate": False}, UnsupportedModelError, "attn_output_gate False"),
    "scaled rope": (
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e7, "factor": 4.0}},
        UnsupportedModelError,
        "rope type 'yarn'",
    ),
    "no rope base": ({"rope_parameters": {}}, FileFormatError, "rope_theta is missing"),
    "odd rotary": (
        {"rope_parameters": {"rope_theta": 1e7, "partial_rotary_factor": 0.2}},
        FileFormatError,
        "partial_rotary_factor is 0.2",
    ),
    "bad sections": (
        {"rope_parameters": {"rope_theta": 1e7, "mrope_section": [1, "x"]}},
        FileFormatError,
        "mrope_section is",
    ),
    "layer types of another length": (
        {"layer_types": ["full_attention"]},
        FileFormatError,
        "a list of 5 layer types",
    ),
    "an unknown layer type": (
        {"layer_types": ["sliding_attention"] * 5},
        FileFormatError,
        "layer_types is 'sliding_attention'",
    ),
    "eos of another type": ({"eos_token_id": "x"}, FileFormatError, "eos_token_id is 'x'"),
    "eos outside": ({"eos_token_id": 300}, FileFormatError, "eos_token_id is 300; ids below 300"),
    "untied without a head": (
        {"tie_word_embeddings": False},
        FileFormatError,
        "lm_head.weight is missing, and tie_word_embeddings is false",
    ),
    "an eps that a float32 can't hold": (
        {"rms_norm_eps": 1e-200},
        FileFormatError,
        "rms_norm_eps is 1e-200",
    ),
    "infinite eps": ({"rms_norm_eps": float("inf")}, FileFormatError, "rms_norm_eps is inf"),
}


@pytest.mark.parametrize("case", CONFIG_CASES)
def test_configuration(tmp_path: Path, case: str) -> None:
    changes, kind, expected = CONFIG_CASES[case]
    assert expected in fails(checkpoint(tmp_path, **changes), kind)


class TestFiles:
    def test_no_folder(self, tmp_path: Path) -> None:
        assert "no such folder" in fails(tmp_path / "absent", OptionError)

    def test_no_config(self, tmp_path: Path) -> None:
        folder = checkpoint(tmp_path)
        (folder / "config.json").unlink()
        assert "config.json: can't read it" in fails(folder)

    @pytest.mark.parametrize(
        ("content", "expected"),
        [
            (b"{", "not valid JSON"),
            (b"[1]", "not a JSON object"),
            (b"\xff\xfe", "not UTF-8"),
            (b"[" * 100_000, "not valid JSON"),
            (b'{"a": 1, "a": 2}', "the key 'a' occurs twice"),
        ],
    )
    def test_a_broken_config(self, tmp_path: Path, content: bytes, expected: str) -> None:
        folder = checkpoint(tmp_path)
        (folder / "config.json").write_bytes(content)
        assert expected in fails(folder)

    def test_no_weights(self, tmp_path: Path) -> None:
        folder = checkpoint(tmp_path)
        (folder / "model.safetensors").unlink()
        assert "holds neither model.safetensors nor" in fails(folder)

    def test_truncation_anywhere(self, tmp_path: Path) -> None:
        folder = checkpoint(tmp_path)
        path = folder / "model.safetensors"
        whole = path.read_bytes()
        for length in [0, 1, 7, 8, 9, 100, 2000, *range(4000, len(whole), 30_011), len(whole) - 1]:
            path.write_bytes(whole[:length])
            assert "model.safetensors" in fails(folder)

    def test_a_missing_tensor(self, tmp_path: Path) -> None:
        c = build.config()
        tensors = build.arrays(c)
        del tensors["model.layers.2.linear_attn.A_log"]
        folder = build.write_checkpoint(tmp_path / "hf", c, tensors)
        assert "tensor model.layers.2.linear_attn.A_log is missing (1 of" in fails(folder)

    def test_an_unknown_tensor_is_not_dropped(self, tmp_path: Path) -> None:
        c = build.config()
        tensors = build.arrays(c)
        tensors["model.layers.0.mlp.up_proj.weight_scale_inv"] = np.ones(2, dtype=np.float32)
        folder = build.write_checkpoint(tmp_path / "hf", c, tensors)
        assert "up_proj.weight_scale_inv' has no place" in fails(folder)

    def test_an_incomplete_prediction_layer(self, tmp_path: Path) -> None:
        c = build.config(mtp_num_hidden_layers=1)
        tensors = build.arrays(c, mtp=True)
        del tensors["mtp.norm.weight"]
        folder = build.write_checkpoint(tmp_path / "hf", c, tensors)
        assert "tensor mtp.norm.weight is missing" in fails(folder)

    def test_no_text_model(self, tmp_path: Path) -> None:
        folder = build.write_checkpoint(
            tmp_path / "hf", build.config(), {"other": np.ones(2, dtype=np.float32)}
        )
        assert "holds no embed_tokens.weight" in fails(folder)

    def test_a_head_that_should_be_tied(self, tmp_path: Path) -> None:
        c = build.config()
        tensors = build.arrays(c)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"] + 1
        folder = build.write_checkpoint(tmp_path / "hf", c, tensors)
        assert "lm_head.weight differs from the embedding" in fails(folder)
        tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"]
        build.write_checkpoint(tmp_path / "hf", c, tensors)
        done = convert_qwen35(folder, tmp_path / "tied.gguf", "f32", tokenizer=None)
        assert done.config.tied_output

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_values_that_are_not_finite(self, tmp_path: Path, bad: float) -> None:
        c = build.config()
        tensors = build.arrays(c)
        tensors["model.layers.4.mlp.down_proj.weight"][3, 3] = bad
        folder = build.write_checkpoint(tmp_path / "hf", c, tensors)
        for outtype in ("f32", "q8_0"):
            assert "down_proj.weight holds a NaN" in fails(folder, outtype=outtype)

    def test_an_integer_tensor(self, tmp_path: Path) -> None:
        c = build.config()
        folder = build.write_checkpoint(tmp_path / "hf", c, build.arrays(c), dtype="I64")
        assert "holds I64 values" in fails(folder, UnsupportedModelError)

    @pytest.mark.parametrize(
        ("change", "expected"),
        [
            ({"weight_map": {}}, "has no weight_map"),
            ({"weight_map": {"a": "../x.safetensors"}}, "which is no file name"),
            ({"weight_map": {"a": 7}}, "which is no file name"),
            ({"weight_map": {"a": "model-00001-of-00002.safetensors"}}, "'a' is missing"),
            ({"weight_map": {"a": "absent.safetensors"}}, "absent.safetensors: can't read it"),
            ({"weight_map": [1]}, "weight_map is [1]"),
        ],
    )
    def test_a_broken_index(self, tmp_path: Path, change: dict[str, Any], expected: str) -> None:
        c = build.config()
        folder = build.write_checkpoint(tmp_path / "hf", c, build.arrays(c), shards=2)
        (folder / "model.safetensors.index.json").write_text(json.dumps(change))
        assert expected in fails(folder)


def entry(**changes: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]} | changes


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ({"t": 5}, "is described by 5"),
        ({"t": entry(shape=[-1])}, "is described by"),
        ({"t": entry(shape="x")}, "is described by"),
        ({"t": entry(data_offsets=[8, 0])}, "has -8 bytes"),
        ({"t": entry(data_offsets=[0])}, "is described by"),
        ({"t": entry(shape=[2**62, 2**62])}, "has 8 bytes"),
        ({"t": entry(dtype="F3")}, "unknown type 'F3'"),
        ({"t": entry(dtype=None)}, "is described by"),
        ({"t": entry(data_offsets=[16, 24])}, "truncated"),
        ({"s": entry(), "t": entry(data_offsets=[4, 12])}, "'s' and 't' overlap"),
    ],
)
def test_hostile_safetensors(tmp_path: Path, header: dict[str, Any], expected: str) -> None:
    text = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(16))
    with pytest.raises(FileFormatError) as caught:
        read_safetensors(path)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_huge_header_length(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", 2**62) + bytes(64))
    with pytest.raises(FileFormatError, match="not a safetensors file"):
        read_safetensors(path)


class TestOutput:
    def test_an_unknown_type(self, tmp_path: Path) -> None:
        assert "use f32, f16" in fails(checkpoint(tmp_path), OptionError, outtype="q3_k")

    def test_existing_files_are_kept(self, tmp_path: Path) -> None:
        folder, output = checkpoint(tmp_path), tmp_path / "m.gguf"
        output.write_bytes(b"precious")
        with pytest.raises(OptionError, match="exists already"):
            convert_qwen35(folder, output, tokenizer=None)
        assert output.read_bytes() == b"precious"
        convert_qwen35(folder, output, tokenizer=None, overwrite=True)
        assert output.read_bytes()[:4] == b"GGUF"

    def test_no_such_folder(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="no such folder"):
            convert_qwen35(checkpoint(tmp_path), tmp_path / "x" / "m.gguf", tokenizer=None)

    def test_a_folder_as_output(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="is a folder"):
            convert_qwen35(checkpoint(tmp_path), tmp_path, tokenizer=None, overwrite=True)

    def test_a_full_disk(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        assert "can't write it: No space left on device" in fails(checkpoint(tmp_path), OptionError)

    def test_an_error_midway_leaves_the_old_file(self, tmp_path: Path) -> None:
        folder, output = checkpoint(tmp_path), tmp_path / "m.gguf"
        output.write_bytes(b"old")

        def stop(done: int, total: int) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            convert_qwen35(folder, output, tokenizer=None, overwrite=True, progress=stop)
        assert output.read_bytes() == b"old"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["hf", "m.gguf"]

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL on this system")
    def test_a_kill_leaves_no_half_file(self, tmp_path: Path) -> None:
        folder, output = checkpoint(tmp_path), tmp_path / "m.gguf"
        script = (
            "import os, signal, sys\n"
            "from specla.models.convert import convert_qwen35\n"
            "def die(done, total):\n"
            "    if done * 2 > total: os.kill(os.getpid(), signal.SIGKILL)\n"
            "convert_qwen35(sys.argv[1], sys.argv[2], 'f32', tokenizer=None, progress=die)\n"
        )
        paths = os.pathsep.join(path for path in sys.path if path)
        done = subprocess.run(
            [sys.executable, "-c", script, str(folder), str(output)],
            env=os.environ | {"PYTHONPATH": paths},
            timeout=60,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL
        assert not output.exists()
        left = [path.name for path in tmp_path.iterdir() if path.name != "hf"]
        assert len(left) == 1 and left[0].endswith(".part")
        convert_qwen35(folder, output, "f32", tokenizer=None)
        assert output.exists()
