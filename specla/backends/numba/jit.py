"""How functions become machine code: one set of compiler options for the whole backend.

A :class:`Kernel` is an entry point with one explicit signature, compiled (or read from Numba's
on-disk cache) at its first use or by ``warm_up``. All kernels have one calling convention
(arguments.py): a block of arguments and a range of units, so that a whole step can be walked
without Python (walker.py). ``device`` (inlined) and ``routine`` are what kernels call; they need
no cache, since a cached kernel contains them.

``fastmath=False``: LLVM then neither re-associates nor contracts ``a * b + c``.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

import numba
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

from specla.backends.numba.arguments import Blocks, Layout, address_of, unpacker

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: dict[str, Any] = {
    "fastmath": False,
    "error_model": "numpy",
    "boundscheck": False,
    "nogil": True,
}
# typed in some releases of Numba and not in others
_njit: Any = numba.njit
_CFunc: Any = CFunc
_normalize: Any = normalize_signature


@cache
def _sources() -> str:
    """Digest of everything that kernels are made of."""
    folder = Path(__file__).parent
    core = folder.parent.parent / "core"
    digest = hashlib.sha256()
    for path in [*sorted(folder.glob("*.py")), core / "elementary_source.py"]:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def _stamp(compiled: Any) -> None:
    """Make cached code depend on all sources: Numba looks at the kernel's own file only, and
    would go on using code of a helper that has changed since."""
    file: Any = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _sources())


def compile_entry(function: Callable[..., Any], signature: Any, cached: bool = True) -> Any:
    """A function for callers in C: compiled, or read from the on-disk cache.

    The result has ``address`` and ``ctypes``; calls through the latter release Python's lock.
    """
    compiled: Any = _CFunc(function, _normalize(signature), locals={}, options=dict(_OPTIONS))
    # without a writable folder every process compiles for itself
    if cached:
        with suppress(RuntimeError):
            compiled.enable_caching()
            _stamp(compiled)
    compiled.compile()
    return compiled


def _entry(block: int, first: int, last: int) -> int:
    """What every kernel looks like from outside. Returns 1 if memory ran out, else 0."""
    try:
        KERNEL(*UNPACK(block, first, last))  # type: ignore[name-defined]  # noqa: F821
    except Exception:
        return 1
    return 0


_ENTRY = "int32(intp, intp, intp)"
_compiling = threading.RLock()


def _constants(function: Callable[..., Any]) -> list[Any] | None:
    """What a closure holds, if it is all plain values."""
    cells = [cell.cell_contents for cell in function.__closure__ or ()]
    return cells if all(isinstance(c, (int, str, tuple)) for c in cells) else None


class Kernel:
    """A compiled function with one signature. Its last two arguments, if named ``first...`` and
    ``last...``, are a range of units.

    cached: whether Numba may keep the code on disk; not done for closures over functions.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, *, cached: bool = True
    ) -> None:
        self.__doc__ = function.__doc__
        self.function, self.signature = function, signature
        constants = _constants(function)
        self._cached = cached and constants is not None
        # the constants tell a closure's variants apart
        self.name = "_".join([function.__name__, *map(str, constants or ())])
        kinds = _normalize(signature)[0]
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._ranged = [name.partition("_")[0] for name in names[-2:]] == ["first", "last"]
        self.layout = Layout(self.name, kinds[:-2] if self._ranged else kinds)
        self._compiled: Any = None

    def __call__(self, *arguments: Any) -> None:
        """Run it on the calling thread alone."""
        units = (0, 1)
        if self._ranged:
            arguments, units = arguments[:-2], arguments[-2:]
        blocks = Blocks()
        start = blocks.add(self.layout, arguments)
        words = blocks.build()
        if self.compile().ctypes(address_of(words) + 8 * start, *units):
            raise MemoryError(f"no memory for {self.name}")

    @property
    def address(self) -> int:
        """Where the machine code begins; compiled now if need be."""
        address: int = self.compile().address
        return address

    def compile(self) -> Any:
        """Compile now, or read the cache. Returns the compiled function."""
        if self._compiled is None:
            with _compiling:
                if self._compiled is None:
                    self._compiled = compile_entry(self._wrapped(), _ENTRY, self._cached)
        return self._compiled

    def _wrapped(self) -> FunctionType:
        """The entry, for Numba's cache a function of the kernel's own file and line.

        What it calls are globals: Numba would take cells of a closure into the cache's key by
        their identity in this process.
        """
        here = self.function.__code__
        code = _entry.__code__.replace(
            co_name=self.name, co_filename=here.co_filename, co_firstlineno=here.co_firstlineno
        )
        names = {
            "__name__": self.function.__module__,
            "KERNEL": _njit(**_OPTIONS)(self.function),
            "UNPACK": unpacker(self.layout.kinds, self._ranged),
        }
        made = FunctionType(code, names, self.name)
        # all entries have one signature: the kernel's own tells those of one function apart
        digest = hashlib.sha256(repr(self.layout.kinds).encode()).hexdigest()
        made.__qualname__ = f"{self.name}_{digest[:12]}"
        return made


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
