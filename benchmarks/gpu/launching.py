"""What may be changed or counted about launches: the hook of specla/backends/triton/launch.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@contextmanager
def changed(**options: Any) -> Iterator[None]:
    """Compiler options of every launch of the backend, over what it asks for."""
    from specla.backends.triton.launch import Launch, launches_to, on_device

    def run(launch: Launch) -> None:
        on_device(replace(launch, options=launch.options | options))

    with launches_to(run):
        yield


@dataclass
class Count:
    """How many launches there were."""

    launches: int = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Count the backend's launches; torch's own are not among them."""
    from specla.backends.triton.launch import Launch, launches_to, on_device

    count = Count()

    def run(launch: Launch) -> None:
        count.launches += 1
        on_device(launch)

    with launches_to(run):
        yield count
