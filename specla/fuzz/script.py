"""A case as a Python program that plays it again."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from itertools import count
from pathlib import Path
from typing import Any

from specla.fuzz.log import Case


def replay(backend: str, case: Case) -> None:
    """Play a case from its start. Raises what playing it raises."""
    world = case.setup.build(backend)
    for operation in case.operations:
        operation.play(world)
    world.finish()


def script(case: Case, backend: str, found_by: str, error: str) -> str:
    """The text of a program that plays ``case`` and ends with a traceback while it fails."""
    names: dict[str, set[str]] = {"specla.fuzz.log": {"Case"}, "specla.fuzz.script": {"replay"}}
    for value in (case.setup, *case.operations):
        for kind in _dataclasses(value):
            names.setdefault(kind.__module__, set()).add(kind.__name__)
    imports = "\n".join(
        f"from {module} import {', '.join(sorted(kinds))}"
        for module, kinds in sorted(names.items())
    )
    operations = "".join(f"        {operation!r},\n" for operation in case.operations)
    return (
        f'"""Found by `{found_by}`:\n\n{_quoted(error)}\n\n'
        f'Run this file with Python; it ends with an error while the defect is there.\n"""\n\n'
        f"{imports}\n\n"
        f"CASE = Case(\n    {case.setup!r},\n    (\n{operations}    ),\n)\n\n"
        f'if __name__ == "__main__":\n'
        f"    replay({backend!r}, CASE)\n"
        f'    print("no difference")\n'
    )


def save(text: str, folder: Path, name: str) -> Path:
    """Write a script, complete or not at all, under a name that nobody else has taken."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in count(1):
        path = folder / f"{name}-{number}.py"
        draft = path.with_suffix(".tmp")
        if path.exists():
            continue
        try:
            # two runs may find one at once: the name belongs to who makes its draft
            file = draft.open("x", encoding="utf-8")
        except FileExistsError:
            continue
        try:
            with file:
                file.write(text)
        except BaseException:
            draft.unlink()
            raise
        # whoever had the draft just before may be done
        if not path.exists():
            os.replace(draft, path)
            return path
        draft.unlink()
    raise AssertionError("unreachable")


def _quoted(error: str) -> str:
    """Fit for the inside of a docstring."""
    return error.replace("\\", "\\\\").replace('"""', "'''")


def _dataclasses(value: Any) -> Iterator[type]:
    if is_dataclass(value) and not isinstance(value, type):
        yield type(value)
        for field in fields(value):
            yield from _dataclasses(getattr(value, field.name))
    elif isinstance(value, (tuple, list)):
        for item in value:
            yield from _dataclasses(item)
