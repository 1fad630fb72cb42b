"""Run compiled kernels in the emulator, in place of a GPU."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ptx.compile import Launch, compile_for, describe
from ptx.errors import UnsupportedError
from ptx.machine import LANES, Machine
from ptx.memory import Memory
from ptx.parse import parse
from ptx.scalars import Array
from specla.backends.triton import launch

_MACHINES: dict[tuple[str, str], Machine] = {}


def machine_for(launch: Launch, target: str) -> Machine:
    """The emulator of a launch's code; kept."""
    key = (target, launch.key)
    if key not in _MACHINES:
        compiled = compile_for(launch, target)
        _MACHINES[key] = Machine(parse(compiled.asm["ptx"]), compiled.metadata.shared)
    return _MACHINES[key]


def run(
    kernel: Any,
    grid: Sequence[int],
    arguments: Sequence[Any],
    meta: dict[str, Any],
    *,
    target: str = "sm_90",
    options: dict[str, Any] | None = None,
    lanes_at_once: int = LANES,
) -> int:
    """Compile and run a kernel; arrays among the arguments change as they would on a GPU.

    arguments: NumPy arrays or torch tensors on the host, and numbers. meta: constexpr arguments.
    options: of the compiler, ``num_warps`` among them. Returns the number of executed instructions.
    """
    tensors = [torch.from_numpy(a) if isinstance(a, np.ndarray) else a for a in arguments]
    compilation, values = describe(kernel, tensors, meta, options or {})
    machine = machine_for(compilation, target)
    kinds = [kind for kind in compilation.signature.values() if kind != "constexpr"]
    device = _Device()
    bits = [device.argument(value, kind) for value, kind in zip(values, kinds, strict=True)]
    # what follows the kernel's own parameters are scratch areas, which it doesn't use
    bits += [0] * (len(machine.program.parameters) - len(bits))
    x, y, z = (*grid, 1, 1)[:3]
    steps = machine.run((x, y, z), bits, device.memory, lanes_at_once)
    device.bring_back()
    return steps


class _Device:
    """Global memory with a copy of every array's whole storage, at addresses as aligned as it."""

    def __init__(self) -> None:
        self.memory = Memory("global memory")
        self._placed: dict[int, tuple[int, Array]] = {}

    def argument(self, value: Any, kind: str) -> int:
        """The bits of a parameter."""
        if isinstance(value, torch.Tensor):
            return self._pointer(value)
        if kind == "fp32":
            return int(np.float32(value).view(np.uint32))
        if kind == "fp64":
            return int.from_bytes(struct.pack("<d", value), "little")
        if kind[0] in "iu" and kind[1:].isdigit():
            return int(value) & ((1 << max(8, int(kind[1:]))) - 1)
        raise UnsupportedError(f"an argument of type {kind}")

    def _pointer(self, tensor: torch.Tensor) -> int:
        storage = tensor.untyped_storage()
        start = storage.data_ptr()
        if start not in self._placed:
            content = torch.empty(0, dtype=torch.uint8).set_(storage).numpy()
            self._placed[start] = (self.memory.place(content, start), content)
        return self._placed[start][0] + tensor.data_ptr() - start

    def bring_back(self) -> None:
        for address, content in self._placed.values():
            content[...] = self.memory.content(address, len(content))


@dataclass
class EmulatedLauncher:
    """Takes the place of a GPU for everything that specla launches: see ``emulated``.

    warps: per program, instead of what the backend asks for; None is that. launched: what ran.
    """

    target: str = "sm_90"
    warps: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    lanes_at_once: int = LANES
    launched: list[str] = field(default_factory=list)

    def __call__(self, asked: launch.Launch) -> None:
        options = asked.options | self.options
        if self.warps is not None:
            options["num_warps"] = self.warps
        self.launched.append(asked.kernel.__name__)
        run(
            asked.kernel,
            asked.grid,
            asked.arguments,
            asked.meta,
            target=self.target,
            options=options,
            lanes_at_once=self.lanes_at_once,
        )


@contextmanager
def emulated(launcher: Any) -> Iterator[None]:
    """Every launch of the Triton backend goes to ``launcher``."""
    if launch.INTERPRETED:
        raise RuntimeError("compiled code can't be tested with TRITON_INTERPRET=1")
    with launch.launches_to(launcher):
        yield
