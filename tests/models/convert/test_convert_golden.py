"""Against llama.cpp's own converter and engine, and against transformers.

The golden files were written by llama.cpp's converter. Turned back into checkpoints (code of its
own) they must give transformers' golden logits, which proves the way back right, and converting
them again must give the golden files' bytes, which proves the converter right.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models.convert import hf_build as build
from models.convert.gguf_to_hf import write_hf
from support.llama_cpp import llama_greedy

from specla.models.convert import convert_qwen35
from specla.models.gguf import GgufFile

GOLDEN = ["golden/a-f32.gguf", "golden/b-f32.gguf", "golden_draft/a-with-mtp.gguf"]


@pytest.mark.parametrize("name", GOLDEN)
def test_converting_back_gives_llama_cpps_bytes(
    shared_data: Path, tmp_path: Path, name: str
) -> None:
    golden = GgufFile.open(shared_data / name)
    done = convert_qwen35(write_hf(golden, tmp_path / "hf"), tmp_path / "m.gguf", "f32")
    ours = GgufFile.open(done.path)
    assert set(ours.tensors) == set(golden.tensors)
    for tensor in golden.tensors.values():
        found = ours.tensors[tensor.name]
        assert (found.kind, found.shape) == (tensor.kind, tensor.shape)
        if tensor.name.endswith("ssm_a"):
            np.testing.assert_allclose(found.to_float32(), tensor.to_float32(), rtol=3e-7)
        else:
            assert found.raw.tobytes() == tensor.raw.tobytes(), tensor.name
    for key in golden.metadata:
        if key not in ("general.size_label", "general.name"):
            assert ours.metadata[key] == golden.metadata[key], key
            assert ours.metadata.type_name(key) == golden.metadata.type_name(key), key
    assert set(ours.metadata) <= set(golden.metadata)


@pytest.mark.oracle
@pytest.mark.parametrize("model", ["a", "b"])
def test_the_way_back_gives_transformers_logits(
    shared_data: Path, tmp_path: Path, model: str
) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    golden = GgufFile.open(shared_data / "golden" / f"{model}-f32.gguf")
    folder = write_hf(golden, tmp_path / "hf")
    target = transformers.Qwen3_5ForCausalLM.from_pretrained(folder, dtype=torch.float32)
    recorded = np.load(shared_data / "golden" / f"{model}.golden.npz")
    with torch.no_grad():
        logits = target(torch.tensor(recorded["ids"][None].astype(np.int64))).logits[0].numpy()
    assert np.abs(logits - recorded["logits"]).max() < 2e-4 * np.abs(recorded["logits"]).max()


@pytest.mark.oracle
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"linear_num_value_heads": 2, "tie_word_embeddings": False},
        {"hidden_size": 40, "num_hidden_layers": 3, "linear_num_key_heads": 1},
    ],
)
def test_checkpoints_that_transformers_writes(tmp_path: Path, changes: dict[str, object]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from models.convert.test_convert_tensors import check_values, expected

    c = build.config(**changes)
    torch.manual_seed(0)
    target = transformers.Qwen3_5ForCausalLM(transformers.Qwen3_5TextConfig(**c))
    with torch.no_grad():
        for parameter in target.parameters():
            parameter.add_(torch.randn_like(parameter) / 8)
    target.save_pretrained(tmp_path / "hf")
    done = convert_qwen35(tmp_path / "hf", tmp_path / "m.gguf", "f32", tokenizer=None)
    tensors = {name: value.numpy() for name, value in target.state_dict().items()}
    if c["tie_word_embeddings"]:
        del tensors["lm_head.weight"]
    check_values(GgufFile.open(done.path), expected(c, tensors, "model."))


@pytest.mark.oracle
@pytest.mark.parametrize("model", ["a", "b"])
def test_llama_cpp_runs_a_converted_file(shared_data: Path, tmp_path: Path, model: str) -> None:
    golden = GgufFile.open(shared_data / "golden" / f"{model}-f32.gguf")
    done = convert_qwen35(write_hf(golden, tmp_path / "hf"), tmp_path / "m.gguf", "f32")
    recorded = [
        int(token) for token in np.load(shared_data / "golden" / f"{model}.golden.npz")["greedy"]
    ]
    assert llama_greedy(done.path, recorded[:16], 32) == recorded[16:]


@pytest.mark.oracle
@pytest.mark.parametrize("outtype", ["f16", "bf16", "q8_0", "q4_0"])
def test_llama_cpp_runs_every_type(shared_data: Path, tmp_path: Path, outtype: str) -> None:
    golden = GgufFile.open(shared_data / "golden_draft" / "a-with-mtp.gguf")
    done = convert_qwen35(write_hf(golden, tmp_path / "hf"), tmp_path / "m.gguf", outtype)
    recorded = np.load(shared_data / "golden" / "a.golden.npz")["greedy"]
    found = llama_greedy(done.path, [int(token) for token in recorded[:16]], 4)
    assert len(found) == 4
    if outtype in ("f16", "bf16"):
        assert found == [int(token) for token in recorded[16:20]]
