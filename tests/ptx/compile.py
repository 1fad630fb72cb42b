"""Compile Triton kernels for GPUs that this machine need not have."""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend
from triton.runtime.jit import create_function_from_signature

TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
    "gfx1100": GPUTarget("hip", "gfx1100", 32),
    "gfx1151": GPUTarget("hip", "gfx1151", 32),
    "gfx1201": GPUTarget("hip", "gfx1201", 32),
}
_TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


@dataclass(frozen=True)
class Launch:
    """What fixes a compilation: a kernel, its arguments' types and alignments, its options.

    signature: type of each argument by name, ``constexpr`` for constants. constants, attributes: as
    Triton keeps them, by position. options: of the compiler, ``num_warps`` among them.
    """

    kernel: Any
    signature: dict[str, str]
    constants: dict[tuple[int, ...], Any]
    attributes: dict[tuple[int, ...], Any]
    options: dict[str, Any]

    @property
    def name(self) -> str:
        return str(self.kernel.__name__)

    @property
    def key(self) -> str:
        """Equal for launches that share their code on every target."""
        parts = (self.signature, self.constants, self.attributes, self.options)
        return f"{self.kernel.cache_key}{parts}"


def describe(
    kernel: Any, arguments: Sequence[Any], meta: dict[str, Any], options: dict[str, Any]
) -> tuple[Launch, list[Any]]:
    """A call as Triton itself specialises it; and the values of the arguments that remain.

    arguments: torch tensors and numbers. Of pointers and integers it is known whether 16 divides
    them; an integer 1 becomes a constant. Triton asks its CUDA backend, as on a GPU.
    """
    backend = make_backend(TARGETS["sm_90"])
    bind = create_function_from_signature(kernel.signature, kernel.params, backend)
    bound, specialization, extra = bind(*arguments, **meta)
    if extra:
        raise TypeError(f"{kernel.__name__} has no argument {', '.join(map(repr, extra))}")
    _, signature, constants, attributes = kernel._pack_args(
        backend, dict(options), bound, specialization, {}
    )
    values = [bound[name] for name, kind in signature.items() if kind != "constexpr"]
    return Launch(kernel, signature, constants, attributes, dict(options)), values


_COMPILED: dict[tuple[str, str], Any] = {}


def compile_for(launch: Launch, target: str) -> Any:
    """Triton's compiled kernel: ``asm`` (ptx and cubin, or amdgcn), ``metadata.shared``."""
    key = (target, launch.key)
    if key not in _COMPILED:
        source = ASTSource(launch.kernel, launch.signature, launch.constants, launch.attributes)
        _COMPILED[key] = triton.compile(source, target=TARGETS[target], options=launch.options)
    return _COMPILED[key]


@dataclass(frozen=True)
class Resources:
    """Per thread: registers, spilled (bytes on NVIDIA, registers on AMD), other private memory in
    bytes. Per block: shared memory in bytes. code: bytes of machine code."""

    registers: int
    spills: int
    private: int
    shared: int
    code: int


def resources_of(compiled: Any) -> Resources:
    """Read out of the machine code."""
    if "cubin" in compiled.asm:
        return _nvidia(compiled)
    return _amd(compiled)


def _nvidia(compiled: Any) -> Resources:
    usage = _dump(compiled.asm["cubin"], "cuobjdump", "-res-usage")
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)", usage)
    if found is None:
        raise RuntimeError(f"cuobjdump says nothing of registers: {usage!r}")
    registers, stack, local = map(int, found.groups())
    spilled = 0
    if stack + local:  # what is spilled lies on the stack
        spilled = len(re.findall(r"\b(?:STL|LDL)\b", machine_code(compiled)))
    code = _text_size(compiled.asm["cubin"])
    return Resources(registers, spilled, stack + local, compiled.metadata.shared, code)


def _text_size(elf: bytes) -> int:
    """Bytes of the sections ``.text.*`` of a 64-bit ELF file."""
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names = struct.unpack_from("<HHH", elf, 0x3A)
    # of a section: offset of its name, its place in the file, its size
    sections = [struct.unpack_from("<I20xQQ", elf, table + i * size) for i in range(count)]
    strings = sections[names][1]
    return sum(
        length for name, _, length in sections if elf[strings + name :].startswith(b".text.")
    )


def machine_code(compiled: Any) -> str:
    """SASS of a cubin."""
    return _dump(compiled.asm["cubin"], "nvdisasm", "-c")


def _dump(cubin: bytes, tool: str, option: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        command = [str(_TOOLS / tool), option, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def _amd(compiled: Any) -> Resources:
    text = compiled.asm["amdgcn"]

    def number(pattern: str) -> int:
        found = re.search(pattern, text)
        if found is None:
            raise RuntimeError(f"no {pattern} in the metadata")
        return int(found.group(1))

    return Resources(
        number(r"\.vgpr_count:\s+(\d+)"),
        number(r"\.vgpr_spill_count:\s+(\d+)") + number(r"\.sgpr_spill_count:\s+(\d+)"),
        number(r"\.private_segment_fixed_size:\s+(\d+)"),
        compiled.metadata.shared,
        number(r"; codeLenInByte = (\d+)"),
    )


@cache
def available() -> str:
    """Why compiling is impossible here; empty if it is possible."""
    return "" if (_TOOLS / "nvdisasm").exists() else "Triton without its NVIDIA tools"
