"""The text layer: whole characters only, nothing beyond a stop string, nothing lost."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.errors import OptionError
from specla.text import TextStream


class Bytes:
    """Token = byte; 256 is a control token."""

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id]) if token_id < 256 else b"<end>"

    def is_hidden(self, token_id: int) -> bool:
        return token_id == 256


def pieces(data: bytes, stops: list[str]) -> tuple[list[str], TextStream]:
    stream, shown = TextStream(Bytes(), stops), []
    for byte in data:
        hit = stream.feed(byte)
        shown.append(stream.take())
        if hit:
            break
    return [*shown, stream.finish()], stream


@given(st.text(max_size=40))
def test_text_comes_whole_and_early(text: str) -> None:
    shown, stream = pieces(text.encode(), [])
    assert "".join(shown) == text
    assert stream.matched is None
    # a character is shown with the token that completes it
    ends = [len(text[: i + 1].encode()) for i in range(len(text))]
    assert [i + 1 for i, piece in enumerate(shown) if piece] == ends


@given(st.binary(max_size=40))
def test_any_bytes_come_as_one_decoding_of_them(data: bytes) -> None:
    assert "".join(pieces(data, [])[0]) == data.decode("utf-8", "replace")


def test_what_is_owed_at_the_end_comes_in_order_and_meets_the_stops() -> None:
    half = "é".encode()[:1]
    shown, stream = pieces(b"xa" + half, ["ab"])
    assert "".join(shown) == "xa\ufffd" and stream.matched is None
    # the end of the text completes it
    shown, stream = pieces(b"xa" + half, ["a\ufffd"])
    assert "".join(shown) == "x" and stream.matched == "a\ufffd"


@given(st.text("abé", max_size=30), st.lists(st.text("abé", min_size=1, max_size=4), max_size=3))
def test_text_ends_before_the_first_complete_stop_string(text: str, stops: list[str]) -> None:
    shown, stream = pieces(text.encode(), stops)
    ends = [end for end in range(len(text) + 1) if any(text[:end].endswith(s) for s in stops)]
    if not ends:
        assert "".join(shown) == text and stream.matched is None
        return
    head = text[: ends[0]]
    longest = max((s for s in stops if head.endswith(s)), key=len)
    assert "".join(shown) == head.removesuffix(longest)
    assert stream.matched == longest


def test_nothing_of_a_stop_string_is_shown_early() -> None:
    stream = TextStream(Bytes(), ["END"])
    for byte in b"xEN":
        assert not stream.feed(byte)
    assert stream.take() == "x"
    assert stream.feed(ord("D"))
    assert stream.take() == "" and stream.finish() == ""


def test_control_tokens_have_no_text() -> None:
    stream = TextStream(Bytes())
    assert not stream.feed(256)
    assert stream.finish() == ""
    assert TextStream(Bytes(), skip_special=False).feed(256) is False


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(OptionError, match="empty"):
        TextStream(Bytes(), [""])
