"""What may be changed or counted about launches: the hook of specla/backends/triton/launch.py."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@contextmanager
def changed(**options: Any) -> Iterator[None]:
    """Compiler options of every launch of the backend, over what it asks for."""

    def run(kernel: Any, grid: Any, arguments: Any, asked: dict[str, Any], meta: Any) -> None:
        kernel[grid](*arguments, **{**asked, **options}, **meta)

    with _runner(run):
        yield


@dataclass
class Count:
    """How many launches there were."""

    launches: int = 0


@contextmanager
def counted() -> Iterator[Count]:
    """Count the backend's launches; torch's own are not among them."""
    count = Count()

    def run(kernel: Any, grid: Any, arguments: Any, options: dict[str, Any], meta: Any) -> None:
        count.launches += 1
        kernel[grid](*arguments, **options, **meta)

    with _runner(run):
        yield count


@contextmanager
def _runner(run: Any) -> Iterator[None]:
    from specla.backends.triton import launch

    before, launch.runner = launch.runner, run
    try:
        yield
    finally:
        launch.runner = before
