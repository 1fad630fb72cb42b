"""A table of named checks, of which some may be chosen or left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Generic, TypeVar

from specla.errors import OptionError
from specla.testing.errors import NotApplicable

S = TypeVar("S")
F = Callable[[S], "str | None"]


@dataclass(frozen=True)
class Result:
    """One check that did not fail. note: what it covered; skipped: why it was not made."""

    name: str
    seconds: float
    note: str = ""
    skipped: str = ""


class Table(Generic[S]):
    """Checks by name, in the order in which they are made.

    A check takes the subject, raises ConformanceError, and may return a short note. Its docstring
    is the sentence of the contract that it checks.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._checks: dict[str, F[S]] = {}

    def add(self, name: str) -> Callable[[F[S]], F[S]]:
        """Decorator: enter a check."""

        def enter(function: F[S]) -> F[S]:
            if name in self._checks:
                raise ValueError(f"{self.kind} check {name!r} is there twice")
            if not function.__doc__:
                raise ValueError(f"{self.kind} check {name!r} doesn't say what it checks")
            self._checks[name] = function
            return function

        return enter

    def names(self) -> list[str]:
        """All checks, in order."""
        return list(self._checks)

    def contract(self, name: str) -> str:
        """The sentence that a check stands for."""
        return " ".join((self._checks[name].__doc__ or "").split())

    def select(self, only: Sequence[str] | None, skip: Sequence[str]) -> list[str]:
        """The chosen names. Raises OptionError for one that isn't there, listing those that are."""
        for name in (*(only or ()), *skip):
            if name not in self._checks:
                known = ", ".join(self._checks)
                raise OptionError(f"unknown {self.kind} check {name!r}; known: {known}")
        chosen = self.names() if only is None else [n for n in self.names() if n in only]
        return [name for name in chosen if name not in skip]

    def run(self, subject: S, only: Sequence[str] | None, skip: Sequence[str]) -> list[Result]:
        """Make the chosen checks; the first that fails raises ConformanceError."""
        return [self._run(name, subject) for name in self.select(only, skip)]

    def _run(self, name: str, subject: S) -> Result:
        start = perf_counter()
        try:
            note = self._checks[name](subject) or ""
        except NotApplicable as reason:
            return Result(name, perf_counter() - start, skipped=str(reason))
        return Result(name, perf_counter() - start, note)
