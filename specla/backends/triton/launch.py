"""The one way to launch a kernel of this backend.

Contracting ``a * b + c`` into one rounding changes bits, so it is switched off here, for every
kernel; one that is launched in another way is found by tests/backends/test_triton_sources.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from typing import Any, TypeVar

from specla.errors import OptionError

INTERPRETED = os.environ.get("TRITON_INTERPRET", "").lower() in ("1", "true", "on", "yes", "y")
"""Whether kernels run in Triton's interpreter, on the host. Fixed when Triton is imported."""

EXACT: dict[str, Any] = {"enable_fp_fusion": False}
"""Options of every compilation."""


@dataclass(frozen=True)
class Launch:
    """A kernel with its arguments. options: of the compiler.  meta: constexpr arguments."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: tuple[Any, ...]
    options: dict[str, Any]
    meta: dict[str, Any]


Runner = Callable[[Launch], None]
Result = TypeVar("Result")

_taker: ContextVar[Runner | None] = ContextVar("taker", default=None)


def launch(
    kernel: Any, grid: tuple[int, ...], *arguments: Any, warps: int = 4, **meta: Any
) -> None:
    """Run ``kernel`` on ``grid``; nothing happens for an empty one. meta: its constexpr arguments.

    warps: per program; no bit depends on it.
    """
    if 0 in grid:
        return
    asked = Launch(kernel, grid, arguments, {"num_warps": warps, **EXACT}, meta)
    taker()(asked)


def taken(runner: Runner, calls: Callable[[], Result]) -> Result:
    """What ``calls`` returns; ``runner`` takes all its launches.

    However it ends, by an interrupt at any moment too, the thread's launches go where they went.
    """

    def inside() -> Result:
        _taker.set(runner)
        return calls()

    return copy_context().run(inside)


@contextmanager
def launches_to(runner: Runner) -> Iterator[None]:
    """``runner`` takes all launches of this thread, for tests and benchmarks."""
    before = _taker.get()
    try:
        _taker.set(runner)
        yield
    finally:
        _taker.set(before)


def taker() -> Runner:
    """Who takes this thread's launches."""
    return _taker.get() or on_device


def on_device(launch: Launch) -> None:
    """A runner: hands the launch to Triton."""
    try:
        with _current_device(launch.arguments):
            launch.kernel[launch.grid](*launch.arguments, **launch.options, **launch.meta)
    except (RuntimeError, subprocess.CalledProcessError) as error:
        # Triton builds a module of its own when it first runs
        if "C compiler" in str(error) or isinstance(error, subprocess.CalledProcessError):
            raise OptionError(
                f"backend 'triton' can't be used: Triton failed to build a small C module "
                f"({' '.join(str(error).split())}); install gcc and Python's headers "
                f"(python3-dev), or name a compiler in CC"
            ) from error
        raise


def _current_device(arguments: tuple[Any, ...]) -> AbstractContextManager[object]:
    """Triton launches on the thread's current device, wherever the tensors lie."""
    device = next((a.device for a in arguments if hasattr(a, "data_ptr")), None)
    if device is None or device.type != "cuda":
        return nullcontext()
    import torch

    if device.index == torch.cuda.current_device():
        return nullcontext()
    on: AbstractContextManager[object] = torch.cuda.device(device)
    return on


def compile_only(launch: Launch) -> None:
    """A runner: compiles for these arguments, runs nothing. The interpreter compiles nothing."""
    if not INTERPRETED:
        options = {**launch.options, **launch.meta}
        with _current_device(launch.arguments):
            launch.kernel.warmup(*launch.arguments, grid=launch.grid, **options)
