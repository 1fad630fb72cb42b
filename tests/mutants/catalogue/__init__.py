"""All mutants by name: one module per part of the code, each with a tuple ``MUTANTS``."""

from __future__ import annotations

from importlib import import_module

from mutants.mutant import Mutant

PARTS = (
    "recurrence",
    "plans",
    "attention",
    "lifecycle",
    "store",
    "engine",
    "sampling",
    "adapters",
    "models",
    "numba",
    "zoo",
)


def part(name: str) -> tuple[Mutant, ...]:
    """The mutants of one of ``PARTS``."""
    found: tuple[Mutant, ...] = import_module(f"mutants.catalogue.{name}").MUTANTS
    return found


mutants: dict[str, Mutant] = {}
for _part in PARTS:
    for _mutant in part(_part):
        if _mutant.name in mutants:
            raise ValueError(f"two mutants are named {_mutant.name}")
        mutants[_mutant.name] = _mutant
