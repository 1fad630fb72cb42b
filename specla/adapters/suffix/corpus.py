"""Texts in a suffix automaton, the oldest forgotten when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from specla.adapters.suffix.automaton import Cursor, SuffixAutomaton

MAX_TOKENS = 1 << 22

KEPT = 0.5
"""Part of the most tokens that a rebuilding keeps; what it costs is spread over the rest."""


@dataclass
class _Text:
    """tokens: those still remembered, from the sequence's token number ``start`` on."""

    start: int = 0
    tokens: list[int] = field(default_factory=list)
    cursor: Cursor = field(default_factory=Cursor)

    def precedes(self, tokens: Sequence[int]) -> bool:
        known = self.start + len(self.tokens)
        if len(tokens) < known:
            return False
        return not self.tokens or tokens[known - 1] == self.tokens[-1]


class Corpus:
    """The texts of some sequences, open and closed.

    limit: longest string whose occurrences are counted.  max_tokens: most tokens remembered. When
    there are more, everything is built anew from the newest half: of the texts that grew last, the
    ends.
    """

    def __init__(self, limit: int, max_tokens: int) -> None:
        self.automaton = SuffixAutomaton(limit)
        self._max_tokens = max_tokens
        self._open: dict[int, _Text] = {}
        # all texts, the one that grew last at the end; the keys are as good as a list
        self._texts: dict[int, _Text] = {}

    def cursor(self, key: int) -> Cursor:
        """Where the text of the open sequence ``key`` stands."""
        return self._open[key].cursor

    def follow(self, key: int, tokens: Sequence[int]) -> None:
        """The text of sequence ``key`` is ``tokens``: take up what is new.

        Only the last known token is compared: within a sequence a text grows at its end. Should it
        not, it is taken for another one.
        """
        text = self._open.get(key)
        if text is None or not text.precedes(tokens):
            text = self._open[key] = _Text()
        known = text.start + len(text.tokens)
        if len(tokens) == known:
            return
        self._texts.pop(id(text), None)
        self._texts[id(text)] = text
        # what would be forgotten at once need not be learned
        start = max(known, len(tokens) - self._max_tokens)
        if start > known:
            self._forget(text, start)
        new = tokens[start:]
        text.tokens += new
        self.automaton.extend(text.cursor, new)
        if self.automaton.size > self._max_tokens:
            self._rebuild()

    def close(self, key: int) -> None:
        """The sequence is over; its text stays until it is the oldest."""
        self._open.pop(key, None)

    @staticmethod
    def _forget(text: _Text, start: int) -> None:
        text.start, text.tokens, text.cursor = start, [], Cursor()

    def _rebuild(self) -> None:
        self.automaton = SuffixAutomaton(self.automaton.limit)
        room = max(int(self._max_tokens * KEPT), 1)
        kept = []
        for text in reversed(self._texts.values()):
            dropped = max(len(text.tokens) - room, 0)
            text.start += dropped
            text.tokens = text.tokens[dropped:]
            text.cursor = Cursor()
            room -= len(text.tokens)
            if text.tokens:
                kept.append(text)
        self._texts = {id(text): text for text in reversed(kept)}
        for text in self._texts.values():
            self.automaton.extend(text.cursor, text.tokens)
