"""Ctrl-C in two steps: the first press ends the text cleanly, the second one the program."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any


class Interrupt:
    """While entered, SIGINT calls ``cancel`` once; after that it raises KeyboardInterrupt.

    pressed, again: whether it was, and a second time. Nothing changes where SIGINT is ignored (a
    job in the background), and outside the main thread, where no handler can be set.
    """

    def __init__(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._previous: Any = None
        self.pressed = self.again = False

    def __enter__(self) -> Interrupt:
        ignored = signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        if not ignored and threading.current_thread() is threading.main_thread():
            self._previous = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: object, _trace: TracebackType | None
    ) -> None:
        if self._previous is not None:
            signal.signal(signal.SIGINT, self._previous)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        if self.pressed:
            self.again = True
            raise KeyboardInterrupt
        self.pressed = True
        self._cancel()
