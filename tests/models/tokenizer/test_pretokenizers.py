"""How the pre-tokenizers cut text into words, by hand."""

from __future__ import annotations

import pytest

from specla.errors import UnsupportedModelError
from specla.models.tokenizer import PRE_TOKENIZERS
from specla.models.tokenizer.pretokenizers import pre_tokenizer_pattern

BOTH = {
    "Hello  world": ["Hello", " ", " world"],
    "I'm HE'LL it'S 'til": ["I", "'m", " HE", "'LL", " it", "'S", " '", "til"],
    "I'LLx he'Re.": ["I", "'LL", "x", " he", "'Re", "."],
    "x123": ["x", "1", "2", "3"],
    "a+b": ["a", "+b"],
    " !?\n\nx": [" !?\n\n", "x"],
    "a \n \n  b": ["a", " \n \n", " ", " b"],
    "\t\tx \u00a0 ": ["\t", "\tx", " \u00a0 "],
    "我想apple": ["我想apple"],
    "end   ": ["end", "   "],
}

QWEN2 = {
    "e\u0301a": ["e", "\u0301a"],
    "!!\u0301": ["!!\u0301"],
    "नमस्ते": ["नमस", "\u094dत", "\u0947"],
}

QWEN35 = {
    "e\u0301a": ["e\u0301a"],
    "!!\u0301": ["!!", "\u0301"],
    "!\u0301": ["!\u0301"],
    "\n\u0301": ["\n", "\u0301"],
    "नमस्ते": ["नमस्ते"],
}


def words(name: str, text: str) -> list[str]:
    from tokenizers import Regex, pre_tokenizers

    splitter = pre_tokenizers.Split(Regex(pre_tokenizer_pattern(name, "x")), behavior="isolated")
    return [word for word, _ in splitter.pre_tokenize_str(text)]


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [(name, *case) for name in ("qwen2", "qwen35") for case in BOTH.items()]
    + [("qwen2", *case) for case in QWEN2.items()]
    + [("qwen35", *case) for case in QWEN35.items()],
)
def test_words(name: str, text: str, expected: list[str]) -> None:
    assert "".join(expected) == text
    assert words(name, text) == expected


def test_unknown_name() -> None:
    assert set(PRE_TOKENIZERS) == {"qwen2", "qwen35"}
    with pytest.raises(UnsupportedModelError, match=r"^a\.gguf: .*'gpt-9'.*qwen2, qwen35"):
        pre_tokenizer_pattern("gpt-9", "a.gguf")
