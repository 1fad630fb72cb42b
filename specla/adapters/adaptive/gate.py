"""When to stop speculating, and when to try again."""

from __future__ import annotations

GAIN_WEIGHT = 0.25
"""Of the latest round in the moving average of what speculation gains."""

FIRST_PAUSE = 4
LATER = 8
"""Rounds of plain decoding before the first probe, and the part of the longest pause that the
next ones have at least. Doubled for each probe that fails."""


class Gate:
    """Open while speculation gains, closed for longer and longer pauses while it doesn't.

    share: part of the tokens that probing may cost, which bounds the pauses.  longest: rounds of
    the longest pause, whatever a probe costs.
    """

    def __init__(self, longest: int, share: float) -> None:
        self.closed = False
        self._longest = longest
        self._share = share
        self._pause = FIRST_PAUSE
        self._left = 0
        self._gain: float | None = None

    @property
    def probing(self) -> bool:
        """Whether the pause is over and this round tries."""
        return self.closed and self._left <= 0

    def wait(self) -> None:
        """A round of the pause went by."""
        self._left -= 1

    def gained(self, gain: float, probe_loss: float) -> None:
        """An open round is expected to gain so many tokens over plain decoding.

        probe_loss: tokens that a failed probe would cost.
        """
        self._gain = gain if self._gain is None else self._gain + GAIN_WEIGHT * (gain - self._gain)
        if self._gain < 0:
            self._close(probe_loss)
        else:
            self._pause = max(self._pause // 2, FIRST_PAUSE)

    def probed(self, won: bool, probe_loss: float) -> None:
        """A probe was better than plain decoding, or not."""
        if won:
            self.closed = False
            self._gain = None
            return
        self._pause = max(2 * self._pause, self._most(probe_loss) // LATER)
        self._close(probe_loss)

    def _close(self, probe_loss: float) -> None:
        self._pause = min(self._pause, self._most(probe_loss))
        self._left = self._pause
        self.closed = True

    def _most(self, probe_loss: float) -> int:
        most = probe_loss / self._share
        # no number at all where a step took no time
        return max(int(most), 1) if most < self._longest else self._longest
