"""The backends that worlds compute on."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from specla.backends import backends, create_backend
from specla.backends.base import Backend
from specla.backends.options import accepted


@cache
def computing(backend: str, threads: int = 1) -> Backend:
    """One instance for all examples: it holds nothing of a sequence. threads: where it has any."""
    known = accepted(backends.get(backend), backend, {})
    return create_backend(backend, threads=threads if "threads" in known else None)


@dataclass(frozen=True)
class Pace:
    """What a backend's speed allows. examples: of one machine before the next one has its turn; the
    first of them is always a trivial one.  share: a short run plays so many times fewer rounds."""

    examples: int = 10
    share: int = 1


INTERPRETED = Pace(examples=3, share=50)
"""A round takes seconds, not milliseconds."""


def pace(backend: str) -> Pace:
    """Of the backend called so."""
    return INTERPRETED if getattr(computing(backend), "interpreted", False) else Pace()
