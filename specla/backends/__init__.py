"""Backends: implementations of the kernel protocol. To add one, register it below."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from specla.backends.base import Backend
from specla.backends.options import BackendOptions, accepted
from specla.core.registry import Registry
from specla.errors import OptionError

__all__ = ["Backend", "BackendOptions", "backends", "best_backend", "create_backend"]

backends: Registry[type[Backend]] = Registry("backend", "specla.backends")
"""All backends by name. A new one is added here, or by the entry-point group.

A backend is made without arguments, but for those of ``threads``, ``level`` and ``device`` (see
BackendOptions) that its constructor names.
"""

AUTO = "auto"


def _load_numpy() -> type[Backend]:
    from specla.backends.numpy.backend import NumpyBackend

    return NumpyBackend


def _load_numba() -> type[Backend]:
    problem = _numba_problem()
    if problem is not None:
        raise OptionError(f"backend numba can't be used: {problem}; use --backend numpy")
    from specla.backends.numba.backend import NumbaBackend

    return NumbaBackend


def _load_triton() -> type[Backend]:
    from specla.backends.triton.packages import require

    require()
    from specla.backends.triton.backend import TritonBackend

    return TritonBackend


def _numba_problem() -> str | None:
    """Why Numba can't compile here, or None."""
    try:
        import numba
    # not installed, made for another NumPy or Python, a library that doesn't load
    except Exception as error:
        return f"importing Numba failed: {type(error).__name__}: {' '.join(str(error).split())}"
    if getattr(numba.config, "DISABLE_JIT", 0):
        return "NUMBA_DISABLE_JIT is set, unset it"
    return None


backends.register("numpy", _load_numpy)
backends.register("numba", _load_numba)
backends.register("triton", _load_triton)


def best_backend() -> tuple[str, str | None]:
    """The backend that "auto" stands for on this machine, and why it isn't the usual one (None: it
    is). Always one that computes on the CPU: to look for a GPU takes seconds, for torch."""
    problem = _numba_problem()
    if problem is None:
        return "numba", None
    return "numpy", f"backend numpy, which is slow, is used: {problem}"


def create_backend(
    name: str = AUTO,
    *,
    threads: int | None = None,
    level: str | None = None,
    device: str | None = None,
    model_bytes: int | None = None,
    note: Callable[[str], None] | None = None,
) -> Backend:
    """The backend called ``name``; "auto" is the best one for this machine's CPU: numba.

    threads, level, device: see BackendOptions; None leaves it to the environment (SPECLA_THREADS,
    SPECLA_CPU_LEVEL, SPECLA_DEVICE), then to a default. model_bytes: weights that will be loaded,
    which decides the default number of threads. note: told, in a line, what is worth knowing, such
    as that "auto" has to make do with the slow reference; None warns.

    Raises OptionError for an unknown name, listing the known ones, and for an option that makes no
    sense or that the backend can't heed.
    """
    if name == AUTO:
        name, problem = best_backend()
        if problem is not None:
            _tell(problem, note)
    kind = backends.get(name)
    options = BackendOptions.resolve(threads, level, model_bytes, device)
    known = accepted(kind, name, {"threads": threads, "level": level, "device": device})
    made = kind(**{option: getattr(options, option) for option in known})
    for line in made.notes() if isinstance(made, Backend) else ():
        _tell(line, note)
    return made


def _tell(line: str, note: Callable[[str], None] | None) -> None:
    if note is not None:
        note(line)
    else:
        warnings.warn(line, UserWarning, stacklevel=3)
