"""Streaming detokenisation equals decoding everything at once."""

from __future__ import annotations

import copy

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizer_helpers import tiny_metadata

from specla.models.tokenizer import StreamDecoder, TextError, Tokenizer

TINY = Tokenizer.from_metadata(tiny_metadata(), "tiny.gguf")
END, THINK, PAD0 = 265, 268, 270
# Lead bytes, continuations and bytes that are never valid, mixed with tokens of all kinds.
BROKEN = [0xC3, 0xA9, 0xE2, 0x82, 0xAC, 0xF0, 0x9F, 0x98, 0x80, 0xED, 0xA0, 0xC0, 0xFF, 0xF4, 0x90]
IDS = st.lists(
    st.one_of(
        st.sampled_from(BROKEN),
        st.sampled_from([65, 259, 264, END, THINK, PAD0]),
        st.integers(0, TINY.vocab_size - 1),
    ),
    max_size=40,
)


@given(IDS, st.booleans())
@example([0xF0, 0x9F, END, 0x98, 0x80], True)
@example([0xF0, 0x9F, END, 0x98, 0x80], False)
@example([0xE2, 0x82], True)
@example([0xED, 0xA0, 0x80], True)
def test_pieces_are_the_whole(ids: list[int], skip: bool) -> None:
    stream = StreamDecoder(TINY, skip_special=skip)
    text = ""
    for count, token_id in enumerate(ids, 1):
        text += stream.feed(token_id)
        assert len(stream.held) <= 3
        # Whatever has been shown stays, whether the text ends here or goes on.
        assert text + copy.copy(stream).finish() == TINY.decode(ids[:count], skip_special=skip)
    assert text + stream.finish() == TINY.decode(ids, skip_special=skip)
    assert stream.held == b"" and stream.finish() == ""


@given(st.text())
def test_valid_text_has_no_replacement(text: str) -> None:
    stream = StreamDecoder(TINY)
    pieces = [stream.feed(byte) for byte in text.encode()]
    assert "".join(pieces) == text
    assert all(len(piece) <= 1 for piece in pieces)
    assert stream.finish() == ""


def test_characters_appear_when_complete() -> None:
    stream = StreamDecoder(TINY)
    assert [stream.feed(byte) for byte in "é€😀".encode()] == [
        *["", "é"], *["", "", "€"], *["", "", "", "😀"]
    ]  # fmt: skip


def test_broken_bytes() -> None:
    stream = StreamDecoder(TINY)
    assert [stream.feed(i) for i in (0xF0, 0x9F, 65, 0xFF, 0xC3)] == ["", "", "�A", "�", ""]
    assert stream.finish() == "�"


def test_special_tokens_are_hidden_or_shown() -> None:
    ids = [259, END, THINK, 264]
    hidden, shown = StreamDecoder(TINY), StreamDecoder(TINY, skip_special=False)
    assert [hidden.feed(i) for i in ids] == ["hello", "", "<think>", " world"]
    assert [shown.feed(i) for i in ids] == ["hello", "<|end|>", "<think>", " world"]


def test_a_bad_id_changes_nothing() -> None:
    stream = StreamDecoder(TINY)
    stream.feed(0xC3)
    with pytest.raises(TextError, match="token id 272"):
        stream.feed(272)
    assert stream.feed(0xA9) == "é"
