"""The text side of a generation: tokens in, showable text out, stop strings as a stop rule.

The engine works on tokens; this joins the streaming decoder and the stop strings to it. Text may
lag behind the tokens: bytes of an unfinished character and the possible beginning of a stop string
are held back until the next tokens decide.
"""

from __future__ import annotations

from collections.abc import Iterable

from specla.models.tokenizer.stops import StopMatcher
from specla.models.tokenizer.stream import StreamDecoder, TokenTable


class TextStream:
    """Text of one generation. Give :meth:`feed` to ``Request.stop_rule``, then :meth:`take` text.

    stop_strings: the text ends before the first of them.  skip_special: leave out control tokens.
    Raises OptionError for an empty stop string.
    """

    def __init__(
        self, tokenizer: TokenTable, stop_strings: Iterable[str] = (), *, skip_special: bool = True
    ) -> None:
        self._decoder = StreamDecoder(tokenizer, skip_special=skip_special)
        self._stops = StopMatcher(stop_strings)
        self._ready: list[str] = []

    @property
    def matched(self) -> str | None:
        """The stop string that ended the text, if one did."""
        return self._stops.matched

    def feed(self, token: int) -> bool:
        """Take an emitted token; True when a stop string is complete, so that decoding must end.

        Raises TextError for an id outside the vocabulary.
        """
        text, hit = self._stops.feed(self._decoder.feed(token))
        self._ready.append(text)
        return hit

    def take(self) -> str:
        """Text that became showable since the last call: whole characters only."""
        text = "".join(self._ready)
        self._ready.clear()
        return text

    def finish(self) -> str:
        """All text still owed at the end: what was held back, unless a stop string was hit.

        Bytes of a character that was never completed become one U+FFFD.
        """
        text, hit = self._stops.feed(self._decoder.finish())
        self._ready.append(text)
        if not hit:
            self._ready.append(self._stops.finish())
        return self.take()
