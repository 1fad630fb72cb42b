"""Backends: implementations of the kernel protocol. To add one, register it below."""

from __future__ import annotations

from specla.backends.base import Backend
from specla.core.registry import Registry

__all__ = ["Backend", "backends", "create_backend"]

backends: Registry[type[Backend]] = Registry("backend", "specla.backends")
"""All backends by name. A new one is added here, or by the entry-point group."""


def _load_numpy() -> type[Backend]:
    from specla.backends.numpy.backend import NumpyBackend

    return NumpyBackend


def _load_numba() -> type[Backend]:
    from specla.backends.numba.backend import NumbaBackend

    return NumbaBackend


backends.register("numpy", _load_numpy)
backends.register("numba", _load_numba)


def create_backend(name: str) -> Backend:
    """The backend called ``name``; "auto" is the best one for this machine.

    Raises OptionError for an unknown name, listing the known ones.
    """
    return backends.get("numpy" if name == "auto" else name)()
