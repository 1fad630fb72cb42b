"""Stop strings: cut streamed text before the first stop string, however the text is split.

All stop strings are matched at once by an Aho-Corasick automaton, one step per character. Its
state is the longest suffix of the text that begins some stop string; exactly that much text is
held back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import NamedTuple

from specla.errors import OptionError


class StopStep(NamedTuple):
    """Text that may be shown, and whether a stop string has been completed."""

    text: str
    hit: bool


class StopMatcher:
    """Filters text pieces; ends before the stop string that is complete first.

    Where several are complete at the same character, the longest one is cut, so the result doesn't
    depend on how the text is split into pieces. No stop strings: all text passes at once.
    """

    def __init__(self, stop_strings: Iterable[str]) -> None:
        """Raises OptionError for an empty stop string, or one that is not a string."""
        self._automaton = _Automaton(_checked(stop_strings))
        self._state = 0
        self._held = ""
        self._matched: str | None = None

    @property
    def held(self) -> str:
        """Text held back because it may be the beginning of a stop string."""
        return self._held

    @property
    def matched(self) -> str | None:
        """The stop string that was hit, if any."""
        return self._matched

    def feed(self, piece: str) -> StopStep:
        """Take a piece of text. After a hit everything further is dropped."""
        if self._matched is not None:
            return StopStep("", True)
        automaton = self._automaton
        state = self._state
        text = self._held + piece
        for end, letter in enumerate(piece, len(self._held) + 1):
            state = automaton.step(state, letter)
            length = automaton.match_length[state]
            if length:
                self._matched = text[end - length : end]
                self._state, self._held = 0, ""
                return StopStep(text[: end - length], True)
        keep = len(text) - automaton.depth[state]
        self._state, self._held = state, text[keep:]
        return StopStep(text[:keep], False)

    def finish(self) -> str:
        """The held text, when generation ended without a hit. The matcher starts afresh."""
        text, self._held, self._state, self._matched = self._held, "", 0, None
        return text


def _checked(stop_strings: Iterable[str]) -> list[str]:
    if isinstance(stop_strings, str):
        raise OptionError(f"stop strings are given as one text {stop_strings!r}: give a list")
    stops = list(stop_strings)
    for index, stop in enumerate(stops):
        if not isinstance(stop, str):
            raise OptionError(f"stop string {index} is a {type(stop).__name__}: give text")
        if not stop:
            raise OptionError(f"stop string {index} is empty and would stop at once: leave it out")
    return stops


class _Automaton:
    """Aho-Corasick automaton over characters. State 0 is the empty suffix.

    Per state: `depth` characters matched, `match_length` of the longest stop string that ends
    here (0 for none).
    """

    def __init__(self, stops: list[str]) -> None:
        self._next: list[dict[str, int]] = [{}]
        self._fail = [0]
        self.depth = [0]
        self.match_length = [0]
        for stop in stops:
            self._insert(stop)
        self._link()

    def step(self, state: int, letter: str) -> int:
        """The state after `letter`; amortised constant time along a text."""
        following = self._next
        while state and letter not in following[state]:
            state = self._fail[state]
        return following[state].get(letter, 0)

    def _insert(self, stop: str) -> None:
        state = 0
        for letter in stop:
            child = self._next[state].get(letter)
            if child is None:
                child = len(self._next)
                self._next[state][letter] = child
                self._next.append({})
                self._fail.append(0)
                self.depth.append(self.depth[state] + 1)
                self.match_length.append(0)
            state = child
        self.match_length[state] = len(stop)

    def _link(self) -> None:
        """Set, breadth first, the state of the longest proper suffix of every state."""
        queue = deque(self._next[0].values())
        while queue:
            state = queue.popleft()
            for letter, child in self._next[state].items():
                self._fail[child] = self.step(self._fail[state], letter)
                queue.append(child)
            if not self.match_length[state]:
                self.match_length[state] = self.match_length[self._fail[state]]
