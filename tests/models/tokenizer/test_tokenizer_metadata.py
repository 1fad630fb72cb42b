"""Bad tokenizer metadata: one line that names the file and the key."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizer_helpers import tiny_metadata

from specla.errors import FileFormatError, SpeclaError, UnsupportedModelError
from specla.models.tokenizer import PRE_TOKENIZERS, Tokenizer

TINY = tiny_metadata()
TOKENS = TINY["tokenizer.ggml.tokens"]
TYPES = TINY["tokenizer.ggml.token_type"]
MERGES = TINY["tokenizer.ggml.merges"]
assert isinstance(TOKENS, list) and isinstance(TYPES, list) and isinstance(MERGES, list)

BAD: list[tuple[str, dict[str, object], str, str]] = [
    ("no model", {"model": None}, "tokenizer.ggml.model", "missing"),
    ("model is a number", {"model": 3}, "tokenizer.ggml.model", "int, not a string"),
    ("no pre-tokenizer", {"pre": None}, "tokenizer.ggml.pre", "missing"),
    ("no tokens", {"tokens": None}, "tokenizer.ggml.tokens", "missing"),
    ("empty tokens", {"tokens": []}, "tokenizer.ggml.tokens", "empty"),
    ("tokens are a string", {"tokens": "abc"}, "tokenizer.ggml.tokens", "str, not an array"),
    ("a token is bytes", {"tokens": [*TOKENS[:-1], b"x"]}, "tokenizer.ggml.tokens", "index 271"),
    ("a token is invalid", {"tokens": [*TOKENS[:-1], "\udcff"]}, "tokens", "UTF-8 at index 271"),
    ("equal tokens", {"tokens": [*TOKENS[:-1], "he"]}, "tokens", "'he' twice, at 256 and 271"),
    ("a byte is missing", {"tokens": [*TOKENS[:10], "xyz", *TOKENS[11:]]}, "tokens", "byte 0x0a"),
    ("no types", {"token_type": None}, "tokenizer.ggml.token_type", "missing"),
    ("types too short", {"token_type": TYPES[:-1]}, "token_type", "271 entries for 272 tokens"),
    ("types too long", {"token_type": [*TYPES, 1]}, "token_type", "273 entries for 272 tokens"),
    ("a type is unknown", {"token_type": [*TYPES[:-1], 9]}, "token_type", "9 at index 271"),
    ("a type is a float", {"token_type": [*TYPES[:-1], 1.0]}, "token_type", "float at index 271"),
    ("no merges", {"merges": None}, "tokenizer.ggml.merges", "missing"),
    ("merge of an unknown token", {"merges": ["h e", "hx e"]}, "merges", "'hx' is not a token"),
    ("merge into an unknown token", {"merges": ["x y"]}, "merges", "'xy' is not a token"),
    ("merge of one token", {"merges": [*MERGES, "he"]}, "merges", "index 9"),
    ("merge of nothing", {"merges": [" he"]}, "merges", "index 0"),
    ("merge of three tokens", {"merges": ["h e l"]}, "merges", "'e l' is not a token"),
    ("equal merges", {"merges": [*MERGES, "l l"]}, "merges", "'l l' twice, at 1 and 9"),
    ("merge on two lines", {"merges": ["h\ne e"]}, "merges", "index 0"),
    ("eos too large", {"eos_token_id": 272}, "eos_token_id", "272, outside"),
    ("eos negative", {"eos_token_id": -1}, "eos_token_id", "-1, outside"),
    ("bos is a string", {"bos_token_id": "1"}, "bos_token_id", "str, not a token id"),
    ("eot is a boolean", {"eot_token_id": True}, "eot_token_id", "bool, not a token id"),
    ("pad too large", {"padding_token_id": 2**40}, "padding_token_id", "outside"),
    ("add_bos is a string", {"add_bos_token": "yes"}, "add_bos_token", "not true or false"),
    ("template is a list", {"chat_template": ["x"]}, "tokenizer.chat_template", "not a string"),
]


@pytest.mark.parametrize(
    ("changes", "key", "problem"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_bad_metadata_is_named(changes: dict[str, object], key: str, problem: str) -> None:
    with pytest.raises(FileFormatError) as caught:
        Tokenizer.from_metadata(tiny_metadata(**changes), "some.gguf")
    message = str(caught.value)
    assert message.startswith("some.gguf: ")
    assert key in message and problem in message
    assert "\n" not in message and len(message) < 400


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model": "llama"}, ["tokenizer.ggml.model", "'llama'", "'gpt2'"]),
        ({"pre": "llama-bpe"}, ["tokenizer.ggml.pre", "'llama-bpe'", *sorted(PRE_TOKENIZERS)]),
    ],
)
def test_unsupported_kinds_list_what_is_known(changes: dict[str, object], words: list[str]) -> None:
    with pytest.raises(UnsupportedModelError) as caught:
        Tokenizer.from_metadata(tiny_metadata(**changes), "some.gguf")
    assert all(word in str(caught.value) for word in ["some.gguf", *words])


def test_every_missing_key_is_an_error_or_optional() -> None:
    optional = {"tokenizer.ggml.eos_token_id"}
    for key in TINY:
        meta = {name: value for name, value in TINY.items() if name != key}
        if key in optional:
            assert Tokenizer.from_metadata(meta, "x").eos_id is None
        else:
            with pytest.raises(SpeclaError, match=key):
                Tokenizer.from_metadata(meta, "x")


def test_metadata_is_not_changed() -> None:
    before = {key: list(v) if isinstance(v, list) else v for key, v in TINY.items()}
    Tokenizer.from_metadata(TINY, "x").encode("hello", parse_special=True)
    assert before == TINY


def test_later_changes_of_the_arrays_do_not_matter() -> None:
    meta = tiny_metadata()
    tokenizer = Tokenizer.from_metadata(meta, "x")
    clear: Callable[[], None] = meta["tokenizer.ggml.tokens"].clear  # type: ignore[attr-defined]
    clear()
    assert tokenizer.decode(tokenizer.encode("hello", parse_special=True)) == "hello"
