"""Compiled kernels on disk: one file per kernel, named after everything it depends on.

Numba's own cache keeps an index per function, which two processes can overwrite for each other so
that one kernel's name leads to another's code, and stops at a damaged file. Here a file's name is
its key, it is complete or absent, and its digest is checked: whatever else is found is compiled
anew. Kernels are looked for in every folder of :func:`folders`, so code that an administrator
compiled serves users who can't write there; new code goes to the first folder that can be written.
"""

from __future__ import annotations

import hashlib
import itertools
import marshal
import os
import pickle
import shutil
import sys
import tempfile
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import llvmlite
import numba
import numpy as np

VARIABLE = "NUMBA_CACHE_DIR"
_NAME = "specla-code"
_KEPT = 8  # versions of the sources whose code stays on disk
_DIGEST = 32
_NEVER_COMPILED = (
    "arena.py",
    "backend.py",
    "launcher.py",
    "pool_kernels.py",
    "program.py",
    "steps.py",
    "threads.py",
    "warmup.py",
)
_PACKAGE = Path(__file__).parent


@dataclass
class Use:
    """What this process has done. loaded, compiled: kernels.  damaged: files that were replaced.
    unsaved: why code could not be written, or None."""

    loaded: int = 0
    compiled: int = 0
    damaged: int = 0
    unsaved: str | None = None


USE = Use()


def folders() -> tuple[Path, ...]:
    """Where compiled code may lie, first choice first: NUMBA_CACHE_DIR, the package, the user's
    cache folder."""
    settings: Any = numba.config
    roots = [Path(settings.CACHE_DIR)] if settings.CACHE_DIR else []
    roots.append(_PACKAGE / "__pycache__")
    if (user := _user_cache()) is not None:
        roots.append(user)
    return tuple(root / _NAME / sources()[:16] for root in roots)


@cache
def folder() -> Path | None:
    """The folder that new code goes to, made if need be; None when no folder can be written."""
    for path in folders():
        new = not path.exists()
        with suppress(OSError):
            path.mkdir(parents=True, exist_ok=True)
            tempfile.TemporaryFile(dir=path).close()
            if new:
                with suppress(OSError):  # another process may be at it
                    _prune(path.parent)
            return path
    return None


def place() -> Path | None:
    """The folder that new code goes to, else the first that holds some; None when there is none."""
    return folder() or next((path for path in folders() if path.is_dir()), None)


def troubles() -> list[str]:
    """What a user should know about this process's use of the cache: a line each."""
    lines, wanted, found = [], os.environ.get(VARIABLE), folder()
    if USE.damaged:
        lines.append(f"compiled code was damaged and was compiled anew: {USE.damaged} kernel(s)")
    if USE.compiled and found is None:
        lines.append(
            f"no folder for compiled code can be written, so that every run compiles anew; set "
            f"{VARIABLE} to one that can"
        )
    elif USE.compiled and wanted and found != folders()[0]:
        lines.append(f"{VARIABLE} {wanted} can't be written; compiled code is kept in {found}")
    if USE.unsaved:
        lines.append(
            f"compiled code can't be kept, so that the next run compiles anew: {USE.unsaved}"
        )
    return lines


@cache
def sources() -> str:
    """Digest of everything that kernels are made of: a change in any helper makes all code old."""
    digest = hashlib.sha256()
    core = _PACKAGE.parent.parent / "core"
    for path in [*sorted(_PACKAGE.glob("*.py")), core / "elementary_source.py"]:
        if path.name not in _NEVER_COMPILED:
            digest.update(path.read_bytes())
    return digest.hexdigest()


class CodeCache:
    """Where Numba's compiler asks for code, in place of Numba's own cache. One per function.

    variant: tells apart what is compiled from one function with one signature.
    """

    def __init__(self, function: Callable[..., Any], variant: str = "") -> None:
        self._function, self._variant = function, variant

    @property
    def cache_path(self) -> str | None:
        """Numba reports this in a dispatcher's statistics."""
        return None if folder() is None else str(folder())

    def has(self, signature: Any) -> bool:
        """Whether there is a file for a signature: Numba's (arguments, result)."""
        from numba.core import typing
        from numba.core.registry import cpu_target

        arguments, result = signature
        made: Any = typing
        codegen = cpu_target.target_context.codegen()
        name = self._file_name(made.signature(result, *arguments), codegen)
        return any((path / name).exists() for path in folders())

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        """The compiled kernel, or None when there is no sound file."""
        # typing information first, as Numba does before it reads a cache
        target_context.refresh()
        name = self._file_name(signature, target_context.codegen())
        for path in dict.fromkeys([*filter(None, [folder()]), *folders()]):
            with suppress(OSError):
                content = (path / name).read_bytes()
                if (found := _rebuilt(content, target_context)) is not None:
                    USE.loaded += 1
                    return found
                USE.damaged += 1
        return None

    def save_overload(self, signature: Any, compiled: Any) -> None:
        """Write the kernel; without a folder, or with a full disk, it serves this process only."""
        USE.compiled += 1
        path = folder()
        if path is None or compiled.lifted or compiled.library.has_dynamic_globals:
            return
        payload = _pickled(compiled._reduce())
        try:
            name = self._file_name(signature, compiled.codegen)
            _write(path / name, hashlib.sha256(payload).digest() + payload)
        except OSError as error:
            USE.unsaved = f"{path}: {error.strerror or error}"

    def enable(self) -> None:
        """Part of the interface; this cache is always on."""

    def disable(self) -> None:
        """Part of the interface; this cache is always on."""

    def flush(self) -> None:
        """Part of the interface; files are replaced, never emptied."""

    def _file_name(self, signature: Any, codegen: Any) -> str:
        key = (
            _described(self._function),
            _origin(self._function.__code__),
            str(signature),
            self._variant,
            codegen.magic_tuple(),  # processor and its features, as limited by the environment
            (numba.__version__, llvmlite.__version__, np.__version__),
            (sys.implementation.cache_tag, sys.version_info[:3]),
        )
        digest = hashlib.sha256(repr(key).encode()).hexdigest()
        return f"{self._function.__name__.strip('_')}-{digest[:_DIGEST]}.code"


def _name_uniquely() -> None:
    """Let this process's compiled functions have names that no other process's have.

    Numba tells functions of one name apart by a number that starts from 1 in every process, and the
    linker goes by these names: loaded together, code of two processes would call one another's.
    """
    from numba.core import bytecode

    identity: Any = bytecode.FunctionIdentity
    identity._unique_ids = itertools.count(int.from_bytes(os.urandom(6), "little"))


_name_uniquely()


def _rebuilt(content: bytes, target_context: Any) -> Any:
    """The kernel in a file's content, None for a damaged one."""
    from numba.core import compiler

    digest, payload = content[:_DIGEST], content[_DIGEST:]
    if hashlib.sha256(payload).digest() != digest:
        return None
    kind: Any = compiler.CompileResult
    return kind._rebuild(target_context, *pickle.loads(payload))


def _pickled(value: Any) -> bytes:
    from numba.core import serialize

    dumps: Callable[[Any], bytes] = serialize.dumps
    return dumps(value)


def _write(path: Path, content: bytes) -> None:
    """All or nothing, also when the process is killed; readable to whom the umask lets."""
    draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        draft.write_bytes(content)
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _described(value: Any, inside: tuple[Any, ...] = ()) -> Any:
    """A constant that a kernel closes over, in words that are the same in every process.

    inside: the functions that led here; one that calls itself closes over itself.
    """
    if isinstance(value, (tuple, list)):
        return tuple(_described(item, inside) for item in value)
    # what Numba wraps: a dispatcher's function, an intrinsic's definition
    function = getattr(value, "py_func", getattr(value, "_defn", value))
    if isinstance(function, FunctionType):
        place = (function.__module__, function.__qualname__, function.__code__.co_firstlineno)
        if function in inside:
            return place
        cells = [cell.cell_contents for cell in function.__closure__ or ()]
        return (*place, function.__code__.co_code, _described(cells, (*inside, function)))
    if value is None or isinstance(value, (bool, int, float, str, np.generic)):
        return repr(value)
    return hashlib.sha256(_pickled(value)).hexdigest()


def _origin(code: CodeType) -> str:
    """Digest of what a kernel was written in, where :func:`sources` doesn't cover it."""
    file = Path(code.co_filename)
    if file.parent == _PACKAGE:
        return ""
    try:
        written = file.read_bytes()
    except OSError:  # made by exec
        written = marshal.dumps(code, 2)  # later versions are not the same in every process
    return hashlib.sha256(written).hexdigest()


def _user_cache() -> Path | None:
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    # a user without a home folder keeps the ~, which must not become a folder's name
    return Path(base) if os.path.isabs(base) else None


def _prune(parent: Path) -> None:
    """Drop code of sources that are no more, all but the newest few."""
    versions = sorted(parent.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in versions[_KEPT:]:
        shutil.rmtree(path, ignore_errors=True)
