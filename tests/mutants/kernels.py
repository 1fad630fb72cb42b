"""Mutants of compiled kernels: code that is compiled with one on must never meet any other.

The code cache names its folders after the sources on disk, which a mutant doesn't change.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from tempfile import TemporaryDirectory

from mutants.mutant import Change, Mutant
from mutants.switch import source_of

_PACKAGE = "specla.backends.numba."
_CACHE = f"{_PACKAGE}code_cache"
_DIGEST = "    digest = hashlib.sha256()\n    core ="


def never_compiled() -> frozenset[str]:
    """Modules of the compiled backend that hold no kernels."""
    listed = re.search(r"_NEVER_COMPILED = (\(.*?\))", source_of(_CACHE), re.DOTALL)
    assert listed is not None
    names = ast.literal_eval(listed[1])
    return frozenset(_PACKAGE + name.removesuffix(".py") for name in names)


def is_compiled(mutant: Mutant) -> bool:
    """Whether a mutant changes what kernels are made of."""
    modules = {change.module for change in mutant.changes}
    inside = {name for name in modules if name.startswith(_PACKAGE)}
    return "specla.core.elementary_source" in modules or bool(inside - never_compiled())


@contextmanager
def own_kernels(mutant: Mutant) -> Iterator[Mutant]:
    """The mutant; if it changes kernels, with folders of its own for compiled code, which go with
    the context."""
    if not is_compiled(mutant):
        yield mutant
        return
    salted = _DIGEST.replace("sha256()", f"sha256({mutant.name.encode()!r})")
    with TemporaryDirectory(prefix="specla-mutant-") as folder:
        os.environ["NUMBA_CACHE_DIR"] = folder
        yield replace(mutant, changes=(*mutant.changes, Change(_CACHE, _DIGEST, salted)))
