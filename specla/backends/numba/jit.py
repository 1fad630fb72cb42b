"""How functions become machine code: one set of compiler options for the whole backend.

``kernel`` is what Python calls: one explicit signature, compiled (or read from Numba's on-disk
cache) at its first call or by ``warm_up``. Array arguments that may be strided are declared as
such, so that one compilation serves contiguous and strided views. ``device`` (inlined) and
``routine`` are what kernels call; they need no cache, since a cached kernel contains them.

``fastmath=False``: LLVM then neither re-associates nor contracts ``a * b + c``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {
    "fastmath": False,
    "error_model": "numpy",
    "boundscheck": False,
    "nogil": True,
}
# typed in some releases of Numba and not in others
_njit: Any = numba.njit


@cache
def _sources() -> str:
    """Digest of everything that kernels are made of."""
    folder = Path(__file__).parent
    core = folder.parent.parent / "core"
    digest = hashlib.sha256()
    for path in [*sorted(folder.glob("*.py")), core / "elementary_source.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamp(dispatcher: Any) -> None:
    """Make cached code depend on all sources: Numba looks at the kernel's own file only, and
    would go on using code of a helper that has changed since."""
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _sources())


_compiling = threading.RLock()


class Kernel:
    """A compiled function with one signature. Compiles when first called."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.__doc__ = function.__doc__
        self.name = function.__name__
        self._function = function
        self._signature = signature
        self._compiled: Callable[..., Any] | None = None

    def __call__(self, *arguments: Any) -> Any:
        return self.ready(*arguments)

    @property
    def ready(self) -> Callable[..., Any]:
        """The compiled function, compiled now if need be."""
        return self._compiled or self.compile()

    def compile(self) -> Callable[..., Any]:
        """Compile now, or read the cache. Returns the compiled function."""
        with _compiling:
            if self._compiled is None:
                self._compiled = self._build()
        return self._compiled

    def _build(self) -> Callable[..., Any]:
        dispatcher: Any = _njit(**_OPTIONS)(self._function)
        # without a writable folder every process compiles for itself
        with suppress(RuntimeError):
            dispatcher.enable_caching()
            _stamp(dispatcher)
        dispatcher.compile(self._signature)
        dispatcher.disable_compile()
        compiled: Callable[..., Any] = dispatcher
        return compiled


_kernels: list[Kernel] = []


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    """Declare an entry point that every processor can compile. signature: Numba's notation.

    What depends on the CPU level is made as a plain ``Kernel``, so that ``declared`` leaves it out.
    """

    def declare(function: Callable[..., Any]) -> Kernel:
        made = Kernel(function, signature)
        _kernels.append(made)
        return made

    return declare


def device(function: F) -> F:
    """Declare a helper that kernels call."""
    compiled: F = _njit(**_OPTIONS, forceinline=True)(function)
    return compiled


def routine(function: F) -> F:
    """Declare a helper too big to be copied into every place that calls it."""
    compiled: F = _njit(**_OPTIONS)(function)
    return compiled


def declared() -> tuple[Kernel, ...]:
    """All kernels of the modules imported so far, but for those of a CPU level."""
    return tuple(_kernels)
