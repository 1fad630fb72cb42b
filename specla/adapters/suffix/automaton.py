"""Which token follows which string, how often, and how recently: an automaton of growing texts.

A suffix automaton has a state for every set of strings that occur at the same places. The
construction is the well-known online one (Blumer et al., "The smallest automaton recognizing the
subwords of a text", 1985), here for several texts at once, each growing at its end. Speculation
from such an index is the idea of SAM-Decoding (Hu et al., 2024) and SuffixDecoding (Oliaro et al.,
2024).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

ROOT = 0


@dataclass
class Cursor:
    """Where one text stands.

    last: state of the whole text.  place: state of its last ``tracked`` tokens.
    """

    last: int = ROOT
    place: int = ROOT
    tracked: int = 0


class SuffixAutomaton:
    """All substrings of some texts.

    limit: counts are exact for strings up to so many tokens; others have none, which keeps the
    work for a new token within ``limit`` steps whatever the text repeats.

    Of each state: length (of its longest string), link (the state of the longest suffix that
    occurs elsewhere, too), children (by token), count (occurrences of each of its strings), latest
    (number of the token with which the most recent one ends, over all texts).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.length = [0]
        self.link = [-1]
        self.children: list[dict[int, int]] = [{}]
        self.count = [0]
        self.latest = [-1]
        self.size = 0

    def extend(self, cursor: Cursor, tokens: Iterable[int]) -> None:
        """Append tokens to the text of ``cursor``."""
        for token in tokens:
            cursor.last = self._append(cursor.last, token)
            place = self.children[self._current(cursor)][token]
            cursor.tracked = min(cursor.tracked + 1, self.limit)
            cursor.place = place
            self._count(self._current(cursor))
            self.size += 1

    def match(self, cursor: Cursor, longest: int) -> tuple[int, int]:
        """State and length of the longest suffix of the text that occurred before; (ROOT, 0) if
        there is none. It has at most ``longest`` tokens, which is at most ``limit``."""
        state, length = self._current(cursor), cursor.tracked
        if self.count[state] < 2:
            state = self.link[state]
            if state <= ROOT:
                return ROOT, 0
            length = self.length[state]
        while self.length[self.link[state]] >= longest:
            state = self.link[state]
        return state, min(length, longest)

    def _current(self, cursor: Cursor) -> int:
        # shorter strings of a state may have moved to a clone, which is one of its links
        place = cursor.place
        while place != ROOT and self.length[self.link[place]] >= cursor.tracked:
            place = self.link[place]
        cursor.place = place
        return place

    def _count(self, place: int) -> None:
        count, latest, link, number = self.count, self.latest, self.link, self.size
        while place > ROOT:
            count[place] += 1
            latest[place] = number
            place = link[place]

    def _append(self, last: int, token: int) -> int:
        """The state of the text at ``last`` plus one token."""
        known = self.children[last].get(token)
        if known is not None:  # another text has it already
            return self._split(last, token, known)
        new = self._state(self.length[last] + 1, {}, 0, -1)
        state = last
        while state >= ROOT and token not in self.children[state]:
            self.children[state][token] = new
            state = self.link[state]
        if state < ROOT:
            self.link[new] = ROOT
        else:
            self.link[new] = self._split(state, token, self.children[state][token])
        return new

    def _split(self, state: int, token: int, child: int) -> int:
        """The state of the longest string of ``state`` plus ``token``, which ``child`` contains."""
        length = self.length[state] + 1
        if self.length[child] == length:
            return child
        # the longer strings of the child occur at fewer places from now on
        children = dict(self.children[child])
        clone = self._state(length, children, self.count[child], self.latest[child])
        self.link[clone] = self.link[child]
        self.link[child] = clone
        while state >= ROOT and self.children[state].get(token) == child:
            self.children[state][token] = clone
            state = self.link[state]
        return clone

    def _state(self, length: int, children: dict[int, int], count: int, latest: int) -> int:
        self.length.append(length)
        self.link.append(-1)
        self.children.append(children)
        self.count.append(count)
        self.latest.append(latest)
        return len(self.length) - 1
