"""What a planted bug is, and what must catch it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Fuzz:
    """The fuzzer at its CI length: ``specla fuzz --level LEVEL --backend BACKEND``."""

    level: str
    backend: str = "numpy"

    def __str__(self) -> str:
        return f"`specla fuzz --level {self.level} --backend {self.backend}`"


@dataclass(frozen=True)
class Named:
    """A named test, as pytest writes it: ``tests/core/test_x.py::test_y``."""

    test: str

    def __str__(self) -> str:
        return f"`{self.test}`"


@dataclass(frozen=True)
class Change:
    """One replaced piece of text in a module; ``old`` occurs there exactly once.

    module: dotted name.  old, new: whole or partial lines, with their indentation.
    """

    module: str
    old: str
    new: str


@dataclass(frozen=True)
class Mutant:
    """A planted bug.

    name: in words, with dashes.  wrong: what goes wrong, in a sentence.  after: the public report
    that it is modelled on ("vllm#39273"), or "" for a mistake that somebody could make.
    caught_by: every one of these must fail with the mutant on.
    """

    name: str
    wrong: str
    changes: tuple[Change, ...]
    caught_by: tuple[Fuzz | Named, ...]
    after: str = ""
