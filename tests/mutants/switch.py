"""Switching a mutant on: a finder that changes modules' source text while they are imported."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

from mutants.mutant import Change, Mutant


class StaleMutantError(Exception):
    """A mutant's text is no longer (or more than once) in the module that it changes."""


def changed(source: str, changes: Sequence[Change]) -> str:
    """Source text with all changes made. Raises StaleMutantError."""
    for change in changes:
        found = source.count(change.old)
        if found != 1:
            raise StaleMutantError(f"{change.module} has {found} times, not once: {change.old!r}")
        source = source.replace(change.old, change.new)
    return source


def source_of(module: str) -> str:
    """Unchanged source text of a module. Imports nothing: what is imported can't be changed."""
    top, *rest = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is not None and spec.origin is not None:
        place = Path(spec.origin).parent.joinpath(*rest)
        for path in (place.with_suffix(".py"), place / "__init__.py"):
            if path.is_file():
                return path.read_text(encoding="utf-8")
    raise StaleMutantError(f"there is no module {module}")


class _Loader(SourceFileLoader):
    def __init__(self, name: str, path: str, changes: Sequence[Change]) -> None:
        super().__init__(name, path)
        self._changes = changes

    def get_code(self, fullname: str) -> CodeType:
        # not the inherited one: no compiled file may be read or written
        path = self.get_filename(fullname)
        text = changed(Path(path).read_text(encoding="utf-8"), self._changes)
        return self.source_to_code(text.encode(), path)


class _Finder(MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        changes = [c for c in self._mutant.changes if c.module == fullname]
        if not changes:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, changes)
        return spec


def switch_on(mutant: Mutant) -> None:
    """Let this process run with the mutant. Before any of its modules is imported."""
    early = {change.module for change in mutant.changes} & set(sys.modules)
    if early:
        raise StaleMutantError(f"{', '.join(sorted(early))} imported before the switch")
    sys.meta_path.insert(0, _Finder(mutant))
