"""The tokenizer on a tiny vocabulary: merges, special tokens, losslessness, errors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizer_helpers import TINY_MERGES, TINY_SPECIAL, tiny_metadata

from specla.errors import OptionError, SpeclaError, UnsupportedModelError
from specla.models.tokenizer import ChatTemplateError, TextError, Tokenizer, tokenizer
from specla.models.tokenizer.bytelevel import BYTE_LETTERS, bytes_to_letters, letters_to_bytes

TINY = Tokenizer.from_metadata(tiny_metadata(), "tiny.gguf")
HELLO, WORLD = 259, 264
END, IM_START, IM_END, THINK, END_BANG, PAD0 = 265, 266, 267, 268, 269, 270


def encode(text: str, parse_special: bool = True) -> list[int]:
    return TINY.encode(text, parse_special=parse_special)


def test_merges_by_rank() -> None:
    assert encode("hello world") == [HELLO, WORLD]
    assert encode("hell") == [258]
    assert encode("hel") == [256, ord("l")]
    assert encode("hello  world") == [HELLO, ord(" "), WORLD]
    assert encode("") == []
    assert TINY.vocab_size == 256 + len(TINY_MERGES) + len(TINY_SPECIAL) + 2


def test_special_tokens_only_where_asked() -> None:
    assert encode("hello<|end|> world") == [HELLO, END, WORLD]
    assert encode("<think><|im_start|>") == [THINK, IM_START]
    for text in TINY_SPECIAL:
        literal = encode(text, parse_special=False)
        assert len(literal) > 1 and max(literal) < END
        assert TINY.decode(literal) == text


def test_the_longest_special_token_wins() -> None:
    assert encode("<|end|>!") == [END_BANG]
    assert encode("<|end|><|end|>!?") == [END, END_BANG, ord("?")]
    assert encode("<|end|") == encode("<|end|", parse_special=False)


def test_pieces_around_special_tokens_are_separate_words() -> None:
    # " world" after a special token; the spaces before it are not cut for a following letter.
    assert encode("hello  <|end|> world") == [HELLO, 32, 32, END, WORLD]


def test_decode_hides_control_and_unused_tokens_only() -> None:
    ids = [HELLO, END, THINK, PAD0, WORLD]
    assert TINY.decode(ids) == "hello<|end|><think>[PAD0] world"
    assert TINY.decode(ids, skip_special=True) == "hello<think> world"
    assert [TINY.is_hidden(i) for i in ids] == [False, True, False, True, False]
    assert TINY.token_bytes(END) == b"<|end|>"
    assert [TINY.token_bytes(i) for i in range(256)] == [bytes([i]) for i in range(256)]


def test_special_tokens_are_plain_text() -> None:
    meta = tiny_metadata()
    tokens, kinds = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.token_type"]
    assert isinstance(tokens, list) and isinstance(kinds, list)
    tokens += ["né ", "Ġé", "né"]
    kinds += [3, 4, 1]
    tokenizer = Tokenizer.from_metadata(meta, "x")
    assert tokenizer.encode("né Ġé", parse_special=True) == [272, 273]
    assert [tokenizer.token_bytes(i) for i in (272, 273)] == ["né ".encode(), "Ġé".encode()]
    # A normal token is written in byte letters: é is byte 0xE9.
    assert tokenizer.token_bytes(274) == b"n\xe9"


def test_ids() -> None:
    changes = {"bos_token_id": IM_START, "eot_token_id": IM_END, "padding_token_id": PAD0}
    rich = Tokenizer.from_metadata(tiny_metadata(**changes, eom_token_id=THINK), "x")
    assert (rich.bos_id, rich.eos_id, rich.eot_id, rich.pad_id) == (IM_START, END, IM_END, PAD0)
    assert rich.end_ids == {END, IM_END, THINK}
    assert (TINY.bos_id, TINY.eot_id, TINY.pad_id, TINY.add_bos) == (None, None, None, False)
    # <|im_end|> is a control token of the vocabulary although no key names it.
    assert TINY.end_ids == {END, IM_END}
    assert dict(TINY.special_tokens) == dict(
        zip(TINY_SPECIAL, [END, IM_START, IM_END, THINK, END_BANG], strict=True)
    )


def test_beginning_of_text() -> None:
    meta = tiny_metadata(bos_token_id=IM_START, add_bos_token=True)
    bos = Tokenizer.from_metadata(meta, "x")
    assert bos.encode("hello", parse_special=False) == [IM_START, HELLO]
    assert bos.encode("hello", parse_special=True, add_bos=False) == [HELLO]
    assert bos.encode("", parse_special=True) == [IM_START]
    assert TINY.encode("hello", parse_special=True, add_bos=False) == [HELLO]
    with pytest.raises(OptionError, match="bos_token_id"):
        TINY.encode("hello", parse_special=True, add_bos=True)


@given(st.text(), st.booleans())
def test_encode_is_lossless(text: str, parse_special: bool) -> None:
    ids = encode(text, parse_special)
    assert TINY.decode(ids) == text
    assert b"".join(map(TINY.token_bytes, ids)) == text.encode()


@given(st.lists(st.sampled_from([*TINY_SPECIAL, "<|", "|>", "!", "<", "hello", " ", "\n", "é"])))
def test_encode_is_lossless_around_special_tokens(parts: list[str]) -> None:
    text = "".join(parts)
    assert TINY.decode(encode(text)) == text
    assert TINY.decode(encode(text, False)) == text
    assert not set(encode(text, False)) & set(TINY.special_tokens.values())


@given(st.lists(st.integers(0, TINY.vocab_size - 1)), st.booleans())
def test_decode_is_the_decoded_bytes(ids: list[int], skip: bool) -> None:
    shown = [i for i in ids if not (skip and TINY.is_hidden(i))]
    data = b"".join(map(TINY.token_bytes, shown))
    assert TINY.decode(ids, skip_special=skip) == data.decode("utf-8", "replace")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("ab\ud800", "U+D800 at character 2"),
        ("\udcff", "U+DCFF at character 0"),
        (b"bytes", "bytes"),
        (None, "NoneType"),
    ],
)
def test_invalid_text(text: str, words: str) -> None:
    for parse_special in (True, False):
        with pytest.raises(TextError) as caught:
            TINY.encode(text, parse_special=parse_special)
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("token_id", [-1, 272, 2**40])
def test_invalid_ids(token_id: int) -> None:
    for call in (TINY.token_bytes, TINY.is_hidden, lambda i: TINY.decode([0, i])):
        with pytest.raises(TextError, match=f"token id {token_id} is outside.*0 to 271"):
            call(token_id)


def test_absurd_white_space(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenizer, "MAX_WHITESPACE_RUN", 50)
    assert encode("x" * 60 + " " * 50 + "x" * 60)
    with pytest.raises(TextError, match="51 white-space"):
        encode("x" + " \t\n" * 17 + "x")


def test_a_panic_of_the_library_is_a_text_error(monkeypatch: pytest.MonkeyPatch) -> None:
    class PanicException(BaseException):
        pass

    class Pipeline:
        def encode(self, text: str, add_special_tokens: bool) -> None:
            raise PanicException("retry limit\nreached") if text == "x" else KeyboardInterrupt

    broken = Tokenizer.from_metadata(tiny_metadata(), "x")
    monkeypatch.setattr(broken, "_bpe", Pipeline())
    with pytest.raises(TextError, match="retry limit reached"):
        broken.encode("x", parse_special=False)
    with pytest.raises(KeyboardInterrupt):
        broken.encode("y", parse_special=False)


def test_chat_template_of_the_file() -> None:
    source = "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}{{ eos_token }}"
    meta = tiny_metadata(chat_template=source, bos_token_id=IM_START)
    template = Tokenizer.from_metadata(meta, "x").chat_template()
    assert template.render([{"role": "user", "content": "hi"}]) == "<|im_start|>hi<|end|>"
    with pytest.raises(UnsupportedModelError, match=r"tiny\.gguf: has no chat template"):
        TINY.chat_template()
    broken = Tokenizer.from_metadata(tiny_metadata(chat_template="{% if %}"), "some.gguf")
    with pytest.raises(ChatTemplateError, match=r"^some\.gguf: chat template: line 1: "):
        broken.chat_template()
    assert issubclass(ChatTemplateError, SpeclaError) and issubclass(TextError, SpeclaError)


def test_byte_letters() -> None:
    assert len(set(BYTE_LETTERS)) == 256
    assert BYTE_LETTERS[ord("A")] == "A"
    assert BYTE_LETTERS[0] == "Ā" and BYTE_LETTERS[ord(" ")] == "Ġ"
    assert BYTE_LETTERS[ord("\n")] == "Ċ"
    assert letters_to_bytes("Ġworld") == b" world"
    assert letters_to_bytes("a b") == b"a b"  # a space is no letter: taken as it is
    assert letters_to_bytes(bytes_to_letters(bytes(range(256)))) == bytes(range(256))
