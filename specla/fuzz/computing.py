"""The backends that worlds compute on."""

from __future__ import annotations

from functools import cache

from specla.backends import backends, create_backend
from specla.backends.base import Backend
from specla.backends.options import accepted


@cache
def computing(backend: str, threads: int = 1) -> Backend:
    """One instance for all examples: it holds nothing of a sequence. threads: where it has any."""
    known = accepted(backends.get(backend), backend, {})
    return create_backend(backend, threads=threads if "threads" in known else None)
