"""A KeyboardInterrupt at a chosen place of chosen files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any


def interrupted(
    operation: Callable[[], Any],
    at: int,
    files: Collection[str],
    *,
    events: Collection[str] = ("line",),
    skip: Collection[str] = (),
) -> bool:
    """Run with a KeyboardInterrupt at the ``at``-th line (or other of the ``events``) of ``files``;
    False: there is no such. It may be lost, where Python closes a generator. skip: functions whose
    lines don't count."""
    seen = 0

    def trace(frame: Any, event: str, _argument: Any) -> Any:
        nonlocal seen
        code = frame.f_code
        if code.co_filename not in files or code.co_name in skip:
            return None
        if event in events:
            seen += 1
            if seen == at:
                raise KeyboardInterrupt
        return trace

    was = sys.gettrace()
    sys.settrace(trace)
    try:
        operation()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(was)
    return seen >= at


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Around what a test does for itself during the operation: its lines don't count."""
    was = sys.gettrace()
    sys.settrace(None)
    try:
        yield
    finally:
        sys.settrace(was)
