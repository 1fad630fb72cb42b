"""tokenizer.json to GGUF metadata: ids, types, special tokens, chat template, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from models.convert import hf_build as build
from models.convert.gguf_to_hf import QWEN2_SPLIT

from specla.errors import FileFormatError, OptionError, SpeclaError, UnsupportedModelError
from specla.models.convert import convert_qwen35
from specla.models.gguf import GgufFile

N_TOKENS = 256 + 6


def folder_with(
    tmp_path: Path, tokenizer: dict[str, Any] | None = None, **files: dict[str, Any] | str
) -> Path:
    c = build.config(hidden_size=32, num_hidden_layers=1, intermediate_size=32)
    folder = build.write_checkpoint(tmp_path / "hf", c | {"eos_token_id": None}, build.arrays(c))
    found = build.tokenizer_json() if tokenizer is None else tokenizer
    (folder / "tokenizer.json").write_text(json.dumps(found))
    for name, content in files.items():
        text = content if isinstance(content, str) else json.dumps(content)
        suffix = ".jinja" if name == "chat_template" else ".json"
        (folder / f"{name}{suffix}").write_text(text)
    return folder


def converted(tmp_path: Path, *args: Any, pre: str | None = None, **files: Any) -> GgufFile:
    folder = folder_with(tmp_path, *args, **files)
    return GgufFile.open(convert_qwen35(folder, tmp_path / "m.gguf", "f32", pre=pre).path)


def ids(gguf: GgufFile) -> dict[str, int]:
    prefix = "tokenizer.ggml."
    return {
        key.removeprefix(prefix): gguf.metadata[key]
        for key in gguf.metadata
        if key.startswith(prefix) and key.endswith("_token_id")
    }


def test_tokens_types_and_merges(tmp_path: Path) -> None:
    metadata = converted(tmp_path).metadata
    assert metadata["tokenizer.ggml.model"] == "gpt2"
    assert metadata["tokenizer.ggml.pre"] == "qwen35"
    tokens = metadata.get_strs("tokenizer.ggml.tokens")
    types = metadata.get_ints("tokenizer.ggml.token_type")
    assert len(tokens) == len(types) == 300
    assert tokens[:256] == build.ALPHABET and tokens[256:259] == ["Ġt", "he", "Ġthe"]
    assert set(types[:N_TOKENS]) == {1}
    assert tokens[N_TOKENS : N_TOKENS + 3] == ["<|endoftext|>", "<|im_end|>", "<think>"]
    assert types[N_TOKENS : N_TOKENS + 3] == [3, 3, 4]
    # the embedding has more rows than there are tokens
    assert tokens[N_TOKENS + 3 :] == [f"[PAD{index}]" for index in range(N_TOKENS + 3, 300)]
    assert set(types[N_TOKENS + 3 :]) == {5}
    assert metadata["tokenizer.ggml.merges"] == build.tokenizer_json()["model"]["merges"]
    assert metadata["tokenizer.ggml.add_bos_token"] is False
    assert metadata.type_name("tokenizer.ggml.token_type") == "array of int32"


def test_merges_as_pairs_and_tokens_that_look_special(tmp_path: Path) -> None:
    tokenizer = build.tokenizer_json()
    lines = tokenizer["model"]["merges"]
    tokenizer["model"]["merges"] = [line.split(" ") for line in lines]
    for entry in tokenizer["added_tokens"]:
        entry["special"] = False
    metadata = converted(tmp_path, tokenizer).metadata
    assert metadata["tokenizer.ggml.merges"] == lines
    assert metadata["tokenizer.ggml.token_type"][N_TOKENS : N_TOKENS + 3] == [3, 3, 4]


def test_the_same_ids_as_the_tokenizers_library(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Reference

    from specla.models.tokenizer import Tokenizer

    gguf = converted(tmp_path)
    reference = Reference.from_file(str(tmp_path / "hf" / "tokenizer.json"))
    ours = Tokenizer.from_metadata(gguf.metadata, str(gguf.path))
    for text in (
        "the other thing",
        " the\n\n  in a  1234 ÄÖ ñandú",
        "x<|im_end|>y <think>\t",
        "🙂",
    ):
        assert ours.encode(text, parse_special=True) == reference.encode(text).ids


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, {}),
        ({"tokenizer_config": {"eos_token": "<|im_end|>"}}, {"eos_token_id": N_TOKENS + 1}),
        (
            {"tokenizer_config": {"eos_token": {"content": "<|im_end|>", "lstrip": False}}},
            {"eos_token_id": N_TOKENS + 1},
        ),
        (
            {
                "tokenizer_config": {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>"},
                "generation_config": {"eos_token_id": [N_TOKENS + 1, N_TOKENS]},
            },
            {
                "eos_token_id": N_TOKENS + 1,
                "eot_token_id": N_TOKENS,
                "padding_token_id": N_TOKENS,
            },
        ),
        ({"generation_config": {"eos_token_id": N_TOKENS}}, {"eos_token_id": N_TOKENS}),
        (
            {"tokenizer_config": {"bos_token": "<|endoftext|>", "eos_token": None}},
            {"bos_token_id": N_TOKENS},
        ),
    ],
)
def test_special_ids(tmp_path: Path, files: dict[str, Any], expected: dict[str, int]) -> None:
    assert ids(converted(tmp_path, **files)) == expected


class TestChatTemplate:
    def test_none(self, tmp_path: Path) -> None:
        assert "tokenizer.chat_template" not in converted(tmp_path).metadata

    def test_its_own_file_wins(self, tmp_path: Path) -> None:
        files = {"chat_template": "{{ own }}", "tokenizer_config": {"chat_template": "{{ other }}"}}
        assert converted(tmp_path, **files).metadata["tokenizer.chat_template"] == "{{ own }}"

    def test_in_the_configuration(self, tmp_path: Path) -> None:
        files = {"tokenizer_config": {"chat_template": "{{ x }}"}}
        assert converted(tmp_path, **files).metadata["tokenizer.chat_template"] == "{{ x }}"

    def test_the_default_of_several(self, tmp_path: Path) -> None:
        several = [{"name": "tool", "template": "t"}, {"name": "default", "template": "d"}]
        files = {"tokenizer_config": {"chat_template": several}}
        assert converted(tmp_path, **files).metadata["tokenizer.chat_template"] == "d"


class TestPreTokenizer:
    def test_qwen2(self, tmp_path: Path) -> None:
        tokenizer = build.tokenizer_json()
        tokenizer["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = QWEN2_SPLIT
        assert converted(tmp_path, tokenizer).metadata["tokenizer.ggml.pre"] == "qwen2"

    def test_an_unknown_one_must_be_named(self, tmp_path: Path) -> None:
        tokenizer = build.tokenizer_json()
        tokenizer["pre_tokenizer"] = {"type": "ByteLevel", "use_regex": True}
        with pytest.raises(UnsupportedModelError, match="pre-tokeniser is none of qwen2, qwen35"):
            converted(tmp_path, tokenizer)
        found = converted(tmp_path, tokenizer, pre="qwen35")
        assert found.metadata["tokenizer.ggml.pre"] == "qwen35"

    def test_a_name_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="pre-tokeniser 'gpt9' is unknown; use one of qwen2"):
            converted(tmp_path, pre="gpt9")


def broken(path: tuple[str | int, ...], value: Any) -> dict[str, Any]:
    tokenizer = build.tokenizer_json()
    holder: Any = tokenizer
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    return tokenizer


@pytest.mark.parametrize(
    ("path", "value", "kind", "expected"),
    [
        (("model",), None, UnsupportedModelError, "a None model"),
        (("model", "type"), "Unigram", UnsupportedModelError, "a 'Unigram' model"),
        (("model", "vocab"), [1], FileFormatError, "vocab is [1]"),
        (("model", "vocab", "!"), "x", FileFormatError, "'!' has the token id 'x'"),
        (("model", "vocab", "!"), 300, FileFormatError, "the embedding has 300 rows"),
        (("model", "vocab", "!"), 1, FileFormatError, "the id 1 stands for"),
        (("model", "merges"), 7, FileFormatError, "merges is 7"),
        (("model", "merges"), ["a b c"], FileFormatError, "the merge 'a b c'"),
        (("model", "merges"), [["a", 1]], FileFormatError, "the merge ['a', 1]"),
        (("model", "merges"), ["q z"], FileFormatError, "'qz' is not a token"),
        (("added_tokens",), ["x"], FileFormatError, "added_tokens is ['x']"),
        (("added_tokens", 0, "id"), None, FileFormatError, "has the token id None"),
        (("added_tokens", 0, "content"), 5, FileFormatError, "5 has the token id"),
        (("added_tokens", 0, "content"), "!", FileFormatError, "holds '!' twice"),
    ],
)
def test_refusals(
    tmp_path: Path, path: tuple[str | int, ...], value: Any, kind: type[SpeclaError], expected: str
) -> None:
    with pytest.raises(kind) as caught:
        converted(tmp_path, broken(path, value))
    assert expected in str(caught.value) and "tokenizer.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"tokenizer_config": {"eos_token": "<absent>"}}, "eos_token is '<absent>', which is not"),
        ({"tokenizer_config": {"add_bos_token": "yes"}}, "add_bos_token is 'yes'"),
        ({"tokenizer_config": {"chat_template": 7}}, "chat_template is 7"),
        ({"tokenizer_config": "{"}, "not valid JSON"),
        ({"generation_config": {"eos_token_id": -3}}, "eos_token_id is -3"),
    ],
)
def test_side_files(tmp_path: Path, files: dict[str, Any], expected: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        converted(tmp_path, **files)
    assert expected in str(caught.value) and "\n" not in str(caught.value)


def test_a_missing_tokenizer_needs_an_explicit_wish(tmp_path: Path) -> None:
    folder = folder_with(tmp_path)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(FileFormatError, match="convert without a tokenizer"):
        convert_qwen35(folder, tmp_path / "m.gguf", "f32")
    done = convert_qwen35(folder, tmp_path / "m.gguf", "f32", tokenizer=None)
    assert "tokenizer.ggml.tokens" not in GgufFile.open(done.path).metadata
