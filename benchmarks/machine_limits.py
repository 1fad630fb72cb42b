"""What this machine can do at best: bytes from memory, and multiplications by instruction.

    python benchmarks/machine_limits.py [--threads 2]

Reading adds up 512 MiB of integers that no cache holds, each thread its own part: as one stream, or
as 8 rows at once, which keeps more of the memory's channels busy. A copy counts the bytes read and
the bytes written. An instruction's peak is that of 12 independent chains of nothing else; one
product and its addition are two operations. Best of several runs, since these are limits.
"""

from __future__ import annotations

import ctypes
import re
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any

import llvmlite.binding as llvm
import numpy as np
from harness import Table, add_backend_options, argument_parser, machine_line
from numba import njit

BYTES = 1 << 29
STREAMS = 8
REPEATS = 7
CHAINS = 12


@njit(nogil=True)
def _one_stream(part: Any) -> Any:
    total = np.uint64(0)
    for i in range(part.shape[0]):
        total += part[i]
    return total


@njit(nogil=True)
def _eight_streams(part: Any) -> Any:
    size = part.shape[0] // 8
    a, b, c, d = part[:size], part[size : 2 * size], part[2 * size : 3 * size], part[3 * size :]
    e, f, g, h = part[4 * size :], part[5 * size :], part[6 * size :], part[7 * size :]
    total = np.uint64(0)
    for i in range(size):
        total += a[i] + b[i] + c[i] + d[i] + e[i] + f[i] + g[i] + h[i]
    return total


def _together(jobs: Sequence[Callable[[], object]], repeats: int = REPEATS) -> float:
    """Best seconds of all jobs side by side, a thread each."""
    times = []
    with ThreadPoolExecutor(len(jobs)) as pool:
        for _ in range(repeats + 1):
            start = time.perf_counter()
            for future in [pool.submit(job) for job in jobs]:
                future.result()
            times.append(time.perf_counter() - start)
    return min(times[1:])


@cache
def _memory() -> np.ndarray:
    # written once, so that every page is a page of its own
    return np.arange(BYTES // 8, dtype=np.uint64)


def read_bandwidth(threads: int, streams: int) -> float:
    """GB/s of reading; streams: 1 or 8 for each thread."""
    read = _one_stream if streams == 1 else _eight_streams
    parts = np.array_split(_memory(), threads)
    seconds = _together([partial(read, part) for part in parts])
    return BYTES / seconds / 1e9


def copy_bandwidth(threads: int) -> float:
    """GB/s of copying one half of the memory to the other, read and written bytes together."""
    source, target = np.split(_memory(), 2)
    pairs = zip(np.array_split(target, threads), np.array_split(source, threads), strict=True)
    seconds = _together([partial(np.copyto, *pair) for pair in pairs])
    return BYTES / seconds / 1e9


# name -> (needed feature, bits, products per instruction, LLVM code of %r from %a and %x)
_INSTRUCTIONS = {
    "vpmaddubsw": ("avx2", 256, 32, """
        %c = bitcast <8 x i32> %a to <32 x i8>
        %s = call <16 x i16> @llvm.x86.avx2.pmadd.ub.sw(<32 x i8> %c, <32 x i8> %x)
        %r = bitcast <16 x i16> %s to <8 x i32>"""),
    "vpmaddwd": ("avx2", 256, 16, """
        %c = bitcast <8 x i32> %a to <16 x i16>
        %y = bitcast <32 x i8> %x to <16 x i16>
        %r = call <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16> %c, <16 x i16> %y)"""),
    "vpdpbusd, 256 bits": ("avx512vnni", 256, 32, """
        %r = call <8 x i32> @llvm.x86.avx512.vpdpbusd.256(
            <8 x i32> %a, <32 x i8> %x, <32 x i8> %x)"""),
    "vpdpbusd, 512 bits": ("avx512vnni", 512, 64, """
        %r = call <16 x i32> @llvm.x86.avx512.vpdpbusd.512(
            <16 x i32> %a, <64 x i8> %x, <64 x i8> %x)"""),
    "vmulps and vaddps": ("avx2", 256, 8, """
        %f = bitcast <8 x i32> %a to <8 x float>
        %g = bitcast <32 x i8> %x to <8 x float>
        %m = fmul <8 x float> %f, %g
        %s = fadd <8 x float> %m, %g
        %r = bitcast <8 x float> %s to <8 x i32>"""),
}  # fmt: skip
_DECLARATIONS = """
declare <16 x i16> @llvm.x86.avx2.pmadd.ub.sw(<32 x i8>, <32 x i8>)
declare <8 x i32> @llvm.x86.avx2.pmadd.wd(<16 x i16>, <16 x i16>)
declare <8 x i32> @llvm.x86.avx512.vpdpbusd.256(<8 x i32>, <OP8>, <OP8>)
declare <16 x i32> @llvm.x86.avx512.vpdpbusd.512(<16 x i32>, <OP16>, <OP16>)
"""


def _program(bits: int, step: str) -> str:
    """LLVM code of `void peak(i64 turns, ptr)`: in each turn, one step of every chain."""
    ints, operand = f"<{bits // 32} x i32>", f"<{bits // 8} x i8>"
    phis, steps, stores = [], [], []
    for k in range(CHAINS):
        phis.append(f"%a{k} = phi {ints} [ %start, %entry ], [ %r{k}, %loop ]")
        # values of one chain get its number; %x is shared
        steps.append(re.sub(r"%([a-wyz])\b", rf"%\g<1>{k}", step))
        stores.append(f"store {ints} %r{k}, ptr %memory, align 1")
    return f"""
define void @peak(i64 %turns, ptr %memory) {{
entry:
  %start = load {ints}, ptr %memory, align 1
  %x = load {operand}, ptr %memory, align 1
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  {chr(10).join(phis)}
  {chr(10).join(steps)}
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %end
end:
  {chr(10).join(store.replace("store", "store volatile") for store in stores)}
  ret void
}}"""


def _module(bits: int, step: str) -> tuple[Any, Any]:
    """The parsed program and a target machine for this processor."""
    # LLVM 22 has bytes where earlier ones have words; a step is written for bytes
    code = _program(bits, step)
    declarations = _DECLARATIONS.replace("<OP8>", "<32 x i8>").replace("<OP16>", "<64 x i8>")
    if llvm.llvm_version_info[0] < 22:
        declarations = _DECLARATIONS.replace("<OP8>", "<8 x i32>").replace("<OP16>", "<16 x i32>")
        if "vpdpbusd" in step:
            code = code.replace(f"<{bits // 8} x i8>", f"<{bits // 32} x i32>")
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module = llvm.parse_assembly(declarations + code)
    module.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=llvm.get_host_cpu_features().flatten(), opt=3
    )
    return module, machine


def available() -> list[str]:
    """Instructions of the table that this processor has; none but on x86."""
    features = llvm.get_host_cpu_features()
    return [name for name, entry in _INSTRUCTIONS.items() if features.get(entry[0])]


def assembly(name: str) -> str:
    """Machine code of an available instruction's loop, as text."""
    _, bits, _, step = _INSTRUCTIONS[name]
    module, machine = _module(bits, step)
    return str(machine.emit_assembly(module))


def instruction_peaks(threads: int, turns: int = 500_000) -> dict[str, float]:
    """GOP/s of the available instructions."""
    peaks = {}
    for name in available():
        _, bits, products, step = _INSTRUCTIONS[name]
        module, machine = _module(bits, step)
        engine = llvm.create_mcjit_compiler(module, machine)
        engine.finalize_object()
        kind = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
        function = kind(engine.get_function_address("peak"))
        memories = [np.zeros(64, np.uint8) for _ in range(threads)]
        jobs = [partial(function, turns, memory.ctypes.data) for memory in memories]
        seconds = _together(jobs, 40)  # short runs: one falls between the neighbours' turns
        peaks[name] = threads * turns * CHAINS * products * 2 / seconds / 1e9
    return peaks


def main() -> int:
    parser = argument_parser(__doc__)
    add_backend_options(parser)
    args = parser.parse_args()
    print(machine_line())
    counts = sorted({1, args.threads})
    table = Table("best", *(f"{n} thread{'s' * (n > 1)}" for n in counts))
    table.row("read, one stream, GB/s", *(read_bandwidth(n, 1) for n in counts))
    table.row("read, 8 streams, GB/s", *(read_bandwidth(n, STREAMS) for n in counts))
    table.row("copy, read + written, GB/s", *(copy_bandwidth(n) for n in counts))
    peaks = [instruction_peaks(n) for n in counts]
    for name in peaks[0]:
        table.row(f"{name}, GOP/s", *(peak[name] for peak in peaks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
