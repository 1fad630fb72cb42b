"""All mutants by name: one module per part of the code, each with a tuple ``MUTANTS``."""

from __future__ import annotations

from importlib import import_module

from mutants.mutant import Mutant

PARTS = ("recurrence", "zoo")

mutants: dict[str, Mutant] = {}
for _part in PARTS:
    for _mutant in import_module(f"mutants.catalogue.{_part}").MUTANTS:
        if _mutant.name in mutants:
            raise ValueError(f"two mutants are named {_mutant.name}")
        mutants[_mutant.name] = _mutant
