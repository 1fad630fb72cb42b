"""Against llama.cpp's own converter: its drafters, turned back into checkpoints, come out again."""

from __future__ import annotations

from pathlib import Path

import pytest
from models.convert.draft_gguf_to_hf import write_hf

from specla.models.convert import convert_checkpoint
from specla.models.gguf import GgufFile

GOLDEN = {
    "a-dflash-full": "a", "a-dspark": "a", "b-dflash-full": "b", "b-dflash-fit": "b",
    "b-dflash-swa": "b", "b-dspark": "b", "b-dspark-fit": "b", "b-dspark-noconf": "b",
}  # fmt: skip
# written from the folder's name and the number of weights
_UNLIKE = ("general.name", "general.size_label")


@pytest.mark.parametrize("nested", [True, False], ids=["nested", "flat"])
@pytest.mark.parametrize("name", GOLDEN)
def test_converting_back_gives_llama_cpps_file(
    shared_data: Path, tmp_path: Path, name: str, nested: bool
) -> None:
    golden = GgufFile.open(shared_data / "golden_draft" / f"{name}.gguf")
    folder = write_hf(golden, tmp_path / "hf", nested)
    target = shared_data / "golden" / f"{GOLDEN[name]}-f32.gguf"
    done = convert_checkpoint(folder, tmp_path / "d.gguf", "f32", target=target)
    ours = GgufFile.open(done.path)
    assert set(ours.tensors) == set(golden.tensors)
    for tensor in golden.tensors.values():
        found = ours.tensors[tensor.name]
        assert (found.kind, found.shape) == (tensor.kind, tensor.shape)
        assert found.raw.tobytes() == tensor.raw.tobytes(), tensor.name
    assert set(ours.metadata) == set(golden.metadata) - {"general.size_label"}
    for key in golden.metadata:
        if key not in _UNLIKE:
            assert ours.metadata[key] == golden.metadata[key], key
            assert ours.metadata.type_name(key) == golden.metadata.type_name(key), key
    assert done.notes == ()
