"""Which backend tests compute on: the fixture `backend_name` runs a module on each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from specla.backends import backends, create_backend
from specla.backends.base import Backend

CPU_BACKENDS = [name for name in ("numpy", "numba") if name in backends.names()]
"""The backends that every machine must agree on, the reference first."""

_chosen = ["numpy"]


@cache
def _made(name: str) -> Backend:
    return create_backend(name, threads=1)


def chosen_backend() -> Backend:
    """The backend of the running test: the reference, unless `computing_on` says otherwise."""
    return _made(_chosen[-1])


def reference() -> Backend:
    """The backend that the others are compared with."""
    return _made("numpy")


@contextmanager
def computing_on(name: str) -> Iterator[str]:
    _chosen.append(name)
    try:
        yield name
    finally:
        _chosen.pop()
