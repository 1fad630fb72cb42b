"""The one way to launch a kernel of this backend.

Contracting ``a * b + c`` into one rounding changes bits, so it is switched off here, for every
kernel; one that is launched in another way is found by tests/backends/test_triton_sources.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from specla.errors import OptionError

INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")
"""Whether kernels run in Triton's interpreter, on the host. Fixed when Triton is imported."""

EXACT: dict[str, Any] = {"enable_fp_fusion": False}
"""Options of every compilation."""

Runner = Callable[[Any, tuple[int, ...], tuple[Any, ...], dict[str, Any], dict[str, Any]], None]

runner: Runner | None = None
"""Takes launches in place of Triton if set: kernel, grid, arguments, compiler options, constexpr
arguments. Tests run compiled code without a GPU this way."""


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **meta: Any
) -> None:
    """Run ``kernel`` on ``grid``; nothing happens for an empty one. meta: its constexpr arguments.

    warps: per program; no bit depends on it.
    """
    if 0 in grid:
        return
    (runner or on_device)(kernel, grid, arguments, {"num_warps": warps, **EXACT}, meta)


@contextmanager
def launches_to(taker: Runner) -> Iterator[None]:
    """``taker`` takes all launches."""
    global runner
    before, runner = runner, taker
    try:
        yield
    finally:
        runner = before


def on_device(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    meta: dict[str, Any],
) -> None:
    """A runner: hands the launch to Triton."""
    try:
        kernel[grid](*arguments, **options, **meta)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        # Triton builds a module of its own when it first runs
        if "C compiler" in str(error) or isinstance(error, subprocess.CalledProcessError):
            raise OptionError(
                f"backend 'triton' can't be used: Triton failed to build a small C module "
                f"({' '.join(str(error).split())}); install gcc and Python's headers "
                f"(python3-dev), or name a compiler in CC"
            ) from error
        raise


def compile_only(
    kernel: Any,
    grid: tuple[int, ...],
    arguments: tuple[Any, ...],
    options: dict[str, Any],
    meta: dict[str, Any],
) -> None:
    """A runner: compiles for these arguments, runs nothing. The interpreter compiles nothing."""
    if not INTERPRETED:
        kernel.warmup(*arguments, grid=grid, **options, **meta)
