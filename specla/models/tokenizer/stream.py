"""Streaming detokenisation: token ids in, text out, never half a character."""

from __future__ import annotations

import codecs
from typing import Protocol


class TokenTable(Protocol):
    """What a stream needs of a tokenizer."""

    def token_bytes(self, token_id: int) -> bytes: ...

    def is_hidden(self, token_id: int) -> bool: ...


class StreamDecoder:
    """Turns token ids into text pieces, one id at a time.

    The pieces plus `finish()` are exactly `tokenizer.decode(ids, skip_special=...)` for all ids
    fed so far: bytes of an unfinished character are held back, invalid bytes become U+FFFD.
    """

    def __init__(self, tokenizer: TokenTable, *, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._held = b""

    @property
    def held(self) -> bytes:
        """Bytes of an unfinished character (at most three)."""
        return self._held

    def feed(self, token_id: int) -> str:
        """Text that `token_id` completes, possibly empty.

        Raises TextError for an id outside the vocabulary; the stream is unchanged then.
        """
        if self._skip_special and self._tokenizer.is_hidden(token_id):
            return ""
        data = self._held + self._tokenizer.token_bytes(token_id)
        text, used = codecs.utf_8_decode(data, "replace", False)
        self._held = data[used:]
        return text

    def finish(self) -> str:
        """The rest: U+FFFD for bytes that no character completed. The stream starts afresh."""
        text = self._held.decode("utf-8", "replace")
        self._held = b""
        return text
