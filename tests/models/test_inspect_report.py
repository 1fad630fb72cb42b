"""`describe`: sizes worked out by hand, and reasons for files that specla can't serve."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from models.qwen35 import qwen35_build as build

from specla.errors import FileFormatError
from specla.models.inspect import describe


def test_a_target(shared_data: Path) -> None:
    path = shared_data / "golden" / "b-Q4_K_M.gguf"
    report = describe(path)
    assert report.serves and report.reason is None
    assert (report.architecture, report.name, report.tokenizer) == ("qwen35", "B Hf", "gpt2/qwen2")
    assert report.file_bytes == path.stat().st_size and report.files == (str(path),)
    assert report.gguf_version == 3
    assert set(report.kinds) == {"Q4_K", "Q6_K", "F32"}
    assert sum(usage.tensors for usage in report.kinds.values()) == 108
    assert sum(usage.weights for usage in report.kinds.values()) == report.parameters
    q4 = report.kinds["Q4_K"]
    assert q4.bytes == q4.weights // 256 * 144
    assert sum(usage.bytes for usage in report.kinds.values()) < report.file_bytes
    state = report.state
    assert state is not None
    # 6 GDN layers of 4 value heads 64 x 64; 2 key heads; C = 2*2*64 + 4*64 = 512; width 4
    assert state.recurrent_bytes == 6 * 4 * 64 * 64 * 4
    assert state.conv_bytes == 6 * 512 * 3 * 4
    # 2 attention layers, keys and values of one KV head of 64
    assert state.kv_bytes_per_token_f16 == 2 * 2 * 64 * 2
    assert state.kv_bytes_per_token_f32 == 2 * 2 * 64 * 4
    assert state.factor_bytes_per_node == 6 * (2 * 64 + 4 * 64 + 4 + 512) * 4
    assert state.factor_banks == 2


def test_parameters_of_the_golden_model(shared_data: Path) -> None:
    with_mtp = describe(shared_data / "golden_draft" / "a-with-mtp.gguf")
    plain = describe(shared_data / "golden" / "a-f32.gguf")
    assert plain.parameters * 4 == plain.kinds["F32"].bytes and list(plain.kinds) == ["F32"]
    assert with_mtp.parameters > plain.parameters and with_mtp.state == plain.state
    assert with_mtp.config is not None and with_mtp.config.n_mtp_layers == 1


@pytest.mark.parametrize(
    ("name", "architecture", "reason"),
    [
        ("stories260K.gguf", "llama", "architecture 'llama' is not supported; specla serves"),
        ("ggml-vocab-qwen35.gguf", "qwen2", "architecture 'qwen2' is not supported"),
        ("golden_draft/b-dspark.gguf", "dflash", "a drafter; give it to a target with --draft"),
        ("golden_draft/b-mtp.gguf", "qwen35", "tensor blk.0.ssm_conv1d.weight is missing"),
    ],
)
def test_other_files(shared_data: Path, name: str, architecture: str, reason: str) -> None:
    report = describe(shared_data / name)
    assert not report.serves and report.architecture == architecture
    assert report.reason is not None and report.reason.startswith(reason)
    assert (report.config is None) == (architecture != "qwen35")


def test_the_dictionary_is_json(shared_data: Path, tmp_path: Path) -> None:
    found = json.loads(json.dumps(describe(shared_data / "golden" / "a-f32.gguf").as_dict()))
    assert found["serves"] is True and found["config"]["n_layers"] == 6
    assert found["state"]["factor_banks"] == 2 and found["kinds"]["F32"]["tensors"] == 84
    json.dumps(describe(shared_data / "stories260K.gguf").as_dict())


def test_without_a_tokenizer_it_is_not_served(tmp_path: Path) -> None:
    gguf = build.write(tmp_path / "m.gguf", build.metadata(), build.tensors())
    report = describe(gguf.path)
    assert not report.serves and report.reason is not None
    assert report.reason.startswith("tokenizer.ggml.model is missing")
    assert report.tokenizer is None and report.config is not None


def test_metadata_of_wrong_types_is_reported_not_raised(tmp_path: Path) -> None:
    gguf = build.write(tmp_path / "m.gguf", {"general.architecture": 7, "general.name": 7}, {})
    report = describe(gguf.path)
    assert report.architecture is None and report.name is None
    assert report.reason == "metadata general.architecture must be a string, found uint32 7"


def test_a_file_that_is_no_gguf(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"nonsense")
    with pytest.raises(FileFormatError, match="not a GGUF file"):
        describe(tmp_path / "m.gguf")
