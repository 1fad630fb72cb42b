"""A named family of implementations: one place to add one, and a clear error for a wrong name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points
from typing import Generic, TypeVar

from specla.errors import OptionError

T = TypeVar("T")


class Registry(Generic[T]):
    """Names to factories: built-in ones by ``register``, third-party ones by entry point.

    kind: what the names stand for ("adapter"), used in messages.
    group: entry-point group in which other packages announce theirs. Built-in names win, so
    that an installed package can't silently replace one.
    """

    def __init__(self, kind: str, group: str) -> None:
        self.kind = kind
        self.group = group
        self._factories: dict[str, Callable[[], T]] = {}

    def register(self, name: str, load: Callable[[], T]) -> None:
        """Add a built-in. ``load`` imports and returns the implementation; it runs on first use."""
        if name in self._factories:
            raise ValueError(f"{self.kind} {name!r} is registered twice")
        self._factories[name] = load

    def names(self) -> list[str]:
        """All known names, built-in first, each family sorted."""
        foreign = {point.name for point in self._entry_points()} - set(self._factories)
        return sorted(self._factories) + sorted(foreign)

    def origin(self, name: str) -> str:
        """Where an implementation comes from: "specla", or the distribution that brings it."""
        if name in self._factories:
            return "specla"
        point = self._find(name)
        return point.dist.name if point.dist is not None else point.value

    def get(self, name: str) -> T:
        """Load one implementation.

        Raises OptionError for an unknown name (listing the known ones) and for a third-party
        one that can't be imported.
        """
        if name in self._factories:
            return self._factories[name]()
        point = self._find(name)
        try:
            loaded: T = point.load()
        except (Exception, SystemExit) as error:
            raise OptionError(
                f"{self.kind} {name!r} from {self.origin(name)} can't be loaded: "
                f"{type(error).__name__}: {' '.join(str(error).split())}"
            ) from error
        return loaded

    def _entry_points(self) -> list[EntryPoint]:
        return list(entry_points(group=self.group))

    def _find(self, name: str) -> EntryPoint:
        for point in self._entry_points():
            if point.name == name:
                return point
        raise OptionError(f"unknown {self.kind} {name!r}; known: {', '.join(self.names())}")
