"""How functions become machine code: one set of compiler options for the whole backend.

A :class:`Kernel` is an entry point with one explicit signature, compiled (or read from the cache on
disk, code_cache.py) at its first use or by ``warm_up``. All kernels have one calling convention
(arguments.py): a block of arguments and a range of units, so that a whole step can be walked
without Python (walker.py). ``device`` (inlined) and ``routine`` are what kernels call; they need
no cache, since a cached kernel contains them.

``fastmath=False``: LLVM then neither re-associates nor contracts ``a * b + c``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

import numba
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

from specla.backends.numba.arguments import Blocks, Layout, address_of, unpacker
from specla.backends.numba.code_cache import CodeCache

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


def compile_entry(
    function: Callable[..., Any], signature: str, cache: CodeCache | None = None
) -> Any:
    """A function for callers in C: compiled, or read from the cache on disk.

    The result has ``address`` and ``ctypes``; calls through the latter release Python's lock.
    """
    compiled: Any = _CFunc(function, _normalize(signature), locals={}, options=dict(_OPTIONS))
    if cache is not None:
        compiled._cache = cache
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


class Kernel:
    """A compiled function with one signature. Its last two arguments, if named ``first...`` and
    ``last...``, are a range of units.

    signature: Numba's notation.  cached: whether the code may be kept on disk.
    """

    def __init__(
        self, function: Callable[..., Any], signature: Any, *, cached: bool = True
    ) -> None:
        self.__doc__ = function.__doc__
        self.function, self.signature = function, signature
        # the constants of a closure tell its variants apart
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        self.name = "_".join([function.__name__, *(str(c) for c in cells if isinstance(c, int))])
        kinds = _normalize(signature)[0]
        names = function.__code__.co_varnames[: function.__code__.co_argcount]
        self._ranged = [name.partition("_")[0] for name in names[-2:]] == ["first", "last"]
        self.layout = Layout(self.name, kinds[:-2] if self._ranged else kinds)
        # all entries have one signature, so the cache is told the kernel's own
        self._cache = CodeCache(function, str(signature)) if cached else None
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

    @property
    def kept(self) -> bool:
        """Whether it is compiled, in this process or on disk."""
        if self._compiled is not None:
            return True
        return self._cache is not None and self._cache.has(_normalize(_ENTRY))

    def compile(self) -> Any:
        """Compile now, or read the cache. Returns the compiled function."""
        if self._compiled is None:
            with _compiling:
                if self._compiled is None:
                    self._compiled = compile_entry(self._wrapped(), _ENTRY, self._cache)
        return self._compiled

    def _wrapped(self) -> FunctionType:
        """The entry, with what it calls as globals, under the kernel's name."""
        names = {
            "__name__": self.function.__module__,
            "KERNEL": _njit(**_OPTIONS)(self.function),
            "UNPACK": unpacker(self.layout.kinds, self._ranged),
        }
        return FunctionType(_entry.__code__, names, self.name)


Launch = Callable[..., None]
"""launch(kernel, units, *arguments, share): run a kernel or record it. share: whether it is worth
more than one thread."""

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
