"""llama.cpp's published test vectors for the `qwen35` pre-tokenizer."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from tokenizer_helpers import gguf_metadata, read_vectors

from specla.models.tokenizer import Tokenizer

NAME = "ggml-vocab-qwen35.gguf"


@pytest.fixture(scope="module")
def tokenizer(shared_data: Path) -> Tokenizer:
    return Tokenizer.from_metadata(gguf_metadata(shared_data / NAME), NAME)


def test_all_vectors(shared_data: Path, tokenizer: Tokenizer) -> None:
    vectors = read_vectors(shared_data, NAME)
    assert len(vectors) == 50
    for text, ids in vectors:
        assert tokenizer.encode(text, parse_special=False) == ids, repr(text)
        assert tokenizer.encode(text, parse_special=True) == ids, repr(text)
        assert tokenizer.decode(ids) == text


def test_the_vectors_forbid_normalisation(shared_data: Path, tokenizer: Tokenizer) -> None:
    decomposed = 0
    for text, ids in read_vectors(shared_data, NAME):
        composed = unicodedata.normalize("NFC", text)
        if composed != text:
            decomposed += 1
            assert tokenizer.encode(composed, parse_special=False) != ids
    assert decomposed == 3


def test_ids_of_the_file(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 151936
    assert tokenizer.eos_id == tokenizer.bos_id == tokenizer.pad_id == 151643
    assert tokenizer.end_ids == {151643, 151645}
    text = "<|im_start|>user\nhi<|im_end|>\n"
    assert tokenizer.encode(text, parse_special=True) == [151644, 872, 198, 6023, 151645, 198]
    assert 151644 not in tokenizer.encode(text, parse_special=False)
