"""A mutant of the zoo in short."""

from __future__ import annotations

from mutants.mutant import Change, Mutant, Named


def change(module: str, old: str, new: str) -> Change:
    """module: below specla."""
    return Change(f"specla.{module}", old, new)


def zoo(name: str, wrong: str, after: str, *parts: str | Change) -> Mutant:
    """parts: changes; and "family::test" for each test of the zoo that must fail."""
    tests = [part.split("::") for part in parts if isinstance(part, str)]
    return Mutant(
        name=f"zoo-{name}",
        wrong=wrong,
        after=after,
        changes=tuple(part for part in parts if isinstance(part, Change)),
        caught_by=tuple(Named(f"tests/zoo/test_zoo_{file}.py::{test}") for file, test in tests),
    )
