"""A drafter and its target: the fit is checked, the tokenizer taken over unchanged."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.convert import dflash_build as draft
from models.convert import hf_build as build

from specla.errors import FileFormatError, OptionError, SpeclaError
from specla.models.convert import convert_checkpoint, convert_qwen35
from specla.models.gguf import GgufFile
from specla.models.gguf.write import TensorToWrite, Value, write_gguf

TOKENS = [f"t{index}" for index in range(draft.VOCAB)]
TOKENIZER = {
    "tokenizer.ggml.model": Value("str", "gpt2"),
    "tokenizer.ggml.pre": Value("str", "qwen35"),
    "tokenizer.ggml.tokens": Value("str", TOKENS),
    "tokenizer.ggml.token_type": Value("i32", [1] * draft.VOCAB),
    "tokenizer.ggml.scores": Value("f32", [0.5] * draft.VOCAB),
    "tokenizer.ggml.merges": Value("str", ["t 0"]),
    "tokenizer.ggml.eos_token_id": Value("u32", 3),
    "tokenizer.ggml.add_bos_token": Value("bool", False),
    "tokenizer.ggml.some_new_key": Value("u64", 1 << 40),
    "tokenizer.ggml.map": Value("u8", [1, 2, 255]),
    "tokenizer.chat_template": Value("str", "{{ messages }} Ж"),
}


def target(
    tmp_path: Path, *, without: tuple[str, ...] = (), rows: int = draft.VOCAB, **changes: Any
) -> Path:
    """A file with what a drafter needs to know of its target; not a model that runs."""
    keys = {
        "general.architecture": Value("str", "qwen35"),
        "qwen35.block_count": Value("u32", 9),
        "qwen35.nextn_predict_layers": Value("u32", 1),
        "qwen35.embedding_length": Value("u32", draft.WIDTH),
        "qwen35.rope.dimension_sections": Value("i32", [1, 1, 0, 0]),
        **TOKENIZER,
    }
    keys |= {name.replace("__", "."): value for name, value in changes.items()}
    keys = {name: value for name, value in keys.items() if not name.startswith(without or "?")}
    table = np.zeros((rows, 4), dtype="<f4")
    tensor = TensorToWrite("token_embd.weight", "F32", table.shape, lambda: iter([table.tobytes()]))
    file = io.BytesIO()
    write_gguf(file, keys, [tensor])
    path = tmp_path / "target.gguf"
    path.write_bytes(file.getvalue())
    return path


def converted(tmp_path: Path, path: Path, c: dict[str, Any] | None = None, **kwargs: Any) -> Any:
    tensors = draft.arrays(draft.shapes())
    return draft.converted(tmp_path, c or draft.nested(), tensors, target=path, **kwargs)


def test_the_tokenizer_is_copied_type_by_type(tmp_path: Path) -> None:
    path = target(tmp_path, tokenizer__ggml__mask_token_id=Value("u32", 4))
    gguf, notes = converted(tmp_path, path)
    theirs = GgufFile.open(path)
    for key in TOKENIZER:
        assert gguf.metadata[key] == theirs.metadata[key], key
        assert gguf.metadata.type_name(key) == theirs.metadata.type_name(key), key
    found = {key for key in gguf.metadata if key.startswith("tokenizer.")}
    assert found == TOKENIZER.keys() | {"tokenizer.ggml.mask_token_id"}
    # the drafter's own mask token, not the target's
    assert gguf.metadata["tokenizer.ggml.mask_token_id"] == 90
    assert gguf.metadata["dflash.rope.dimension_sections"] == [draft.HEAD_DIM // 2, 0, 0, 0]
    assert notes == ()


def test_sections_cover_what_is_rotated(tmp_path: Path) -> None:
    rope = {"rope_theta": 1e4, "partial_rotary_factor": 0.5}
    gguf, _ = converted(tmp_path, target(tmp_path), draft.nested(rope_parameters=rope))
    assert gguf.metadata["dflash.rope.dimension_sections"] == [draft.HEAD_DIM // 4, 0, 0, 0]
    assert gguf.metadata["dflash.rope.dimension_count"] == draft.HEAD_DIM // 2


def test_only_targets_with_several_axes_need_sections(tmp_path: Path) -> None:
    gguf, _ = converted(tmp_path, target(tmp_path, without=("qwen35.rope",)))
    assert "dflash.rope.dimension_sections" not in gguf.metadata


def test_a_missing_mask_token_may_be_the_targets(tmp_path: Path) -> None:
    path = target(tmp_path, tokenizer__ggml__mask_token_id=Value("u32", 4))
    gguf, notes = converted(tmp_path, path, draft.nested(dflash__mask_token_id=None))
    assert gguf.metadata["tokenizer.ggml.mask_token_id"] == 4
    assert notes == ("mask_token_id is missing; the target's mask token 4 was taken",)


def test_the_last_layer_is_noted(tmp_path: Path) -> None:
    c = draft.nested(dflash__target_layer_ids=[1, 3, 7])
    _, notes = converted(tmp_path, target(tmp_path), c)
    assert notes == ("reads the target's last layer (7), which llama.cpp can't capture",)


def test_without_the_tokenizer_the_fit_is_still_checked(tmp_path: Path) -> None:
    path = target(tmp_path, without=("tokenizer.",))
    gguf, _ = converted(tmp_path, path, tokenizer=False)
    assert "tokenizer.ggml.tokens" not in gguf.metadata


@pytest.mark.parametrize(
    ("build_target", "c", "expected"),
    [
        ({"qwen35__embedding_length": Value("u32", 32)}, {}, "hidden_size is 32, the drafter's 64"),
        (
            {"tokenizer__ggml__tokens": Value("str", TOKENS[:-1])},
            {},
            "its vocab_size is 95, the drafter's 96",
        ),
        ({"without": ("tokenizer.",), "rows": 95}, {}, "its vocab_size is 95, the drafter's 96"),
        ({"without": ("tokenizer.",)}, {}, "holds no tokenizer; name another target"),
        (
            {"qwen35__block_count": Value("u32", 8)},
            {},
            "its num_target_layers is 7, the drafter's 8",
        ),
        (
            {"qwen35__block_count": Value("u32", 7)},
            {"num_target_layers": None},
            "it has 6 layers, the drafter reads layer 6",
        ),
        ({"without": ("qwen35.embedding_length",)}, {}, "qwen35.embedding_length is missing"),
        ({"without": ("general.architecture",)}, {}, "general.architecture is missing"),
    ],
)
def test_a_target_that_does_not_fit(
    tmp_path: Path, build_target: dict[str, Any], c: dict[str, Any], expected: str
) -> None:
    path = target(tmp_path, **build_target)
    folder = draft.checkpoint(tmp_path, draft.nested(**c), draft.arrays(draft.shapes()))
    with pytest.raises(FileFormatError) as caught:
        convert_checkpoint(folder, tmp_path / "d.gguf", "f32", target=path)
    assert str(caught.value).startswith(str(path)) and expected in str(caught.value)
    assert "\n" not in str(caught.value) and not (tmp_path / "d.gguf").exists()


def test_a_drafter_is_no_target(tmp_path: Path) -> None:
    folder = draft.checkpoint(tmp_path, draft.nested(), draft.arrays(draft.shapes()))
    first = convert_checkpoint(folder, tmp_path / "d.gguf", "f32").path
    with pytest.raises(FileFormatError, match="is a drafter itself"):
        convert_checkpoint(folder, tmp_path / "e.gguf", "f32", target=first)


def test_a_target_that_is_no_model(tmp_path: Path) -> None:
    folder = draft.checkpoint(tmp_path, draft.nested(), draft.arrays(draft.shapes()))
    for path in (tmp_path / "none.gguf", tmp_path, folder / "config.json"):
        with pytest.raises(SpeclaError, match=r"^[^\n]*$"):
            convert_checkpoint(folder, tmp_path / "d.gguf", "f32", target=path)


class TestOwnTokenizer:
    def folder(self, tmp_path: Path) -> Path:
        c = draft.nested(vocab_size=300, bos_token_id=7, pad_token_id=8, eos_token_id=9)
        folder = draft.checkpoint(tmp_path, c, draft.arrays(draft.shapes()))
        tokenizer = tmp_path / "hf" / "tokenizer.json"
        tokenizer.write_text(json.dumps(build.tokenizer_json()))
        return folder

    def test_it_is_taken_without_a_target(self, tmp_path: Path) -> None:
        done = convert_checkpoint(self.folder(tmp_path), tmp_path / "d.gguf", "f32")
        keys = GgufFile.open(done.path).metadata
        assert keys.count("tokenizer.ggml.tokens") == 300 and done.notes == ()
        assert keys["tokenizer.ggml.pre"] == "qwen35"
        names = ("bos", "eos", "padding", "mask")
        assert [keys[f"tokenizer.ggml.{name}_token_id"] for name in names] == [7, 9, 8, 90]

    def test_unless_it_is_not_wanted(self, tmp_path: Path) -> None:
        folder = self.folder(tmp_path)
        done = convert_checkpoint(folder, tmp_path / "d.gguf", "f32", tokenizer=False)
        assert "tokenizer.ggml.tokens" not in GgufFile.open(done.path).metadata


class TestKinds:
    """One command for every kind of checkpoint."""

    def test_a_target(self, tmp_path: Path) -> None:
        c = build.config()
        folder = build.write_checkpoint(tmp_path / "hf", c, build.arrays(c))
        direct = convert_qwen35(folder, tmp_path / "a.gguf", "f32", tokenizer=None)
        done = convert_checkpoint(folder, tmp_path / "b.gguf", "f32", tokenizer=False)
        assert done.path.read_bytes() == direct.path.read_bytes()
        for options in ({"target": direct.path}, {"aux_heads": None}):
            with pytest.raises(OptionError, match="holds a target, for which the option"):
                convert_checkpoint(folder, tmp_path / "c.gguf", "f32", **options)

    def test_a_drafter_has_no_prediction_layer(self, tmp_path: Path) -> None:
        folder = draft.checkpoint(tmp_path, draft.nested(), draft.arrays(draft.shapes()))
        with pytest.raises(OptionError, match="holds a drafter, for which the option mtp"):
            convert_checkpoint(folder, tmp_path / "d.gguf", mtp=False)
