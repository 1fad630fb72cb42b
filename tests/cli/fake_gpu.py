"""A backend that says it computes on a GPU; it is the reference."""

from __future__ import annotations

from typing import Any, ClassVar

from specla.backends.numpy.backend import NumpyBackend

FACTS = {
    "device": "cuda:0", "name": "NVIDIA H200", "architecture": "sm_90", "memory": 140 << 30,
    "runtime": "CUDA 12.8", "driver": "570.86.15", "torch": "2.13.0", "triton": "3.9.0",
}  # fmt: skip
WORDS = "NVIDIA H200 (cuda:0, sm_90, 140.0 GiB, CUDA 12.8, driver 570.86.15)"


class OutOfMemoryError(RuntimeError):
    """As torch raises one."""


class GpuBackend(NumpyBackend):
    """free: bytes of its memory.  dies_in: a kernel for which there is none."""

    name = "gpu"
    out_of_memory = (MemoryError, OutOfMemoryError)
    free: ClassVar[int] = 100 << 30
    dies_in: ClassVar[str | None] = None

    def __init__(self, device: str | None) -> None:
        super().__init__()
        self.device = device or "cuda:0"

    def describe(self) -> dict[str, Any]:
        return {**FACTS, "device": self.device}

    def memory(self) -> tuple[int, int] | None:
        return self.free, FACTS["memory"]  # type: ignore[return-value]

    def load(self, source: Any) -> Any:
        self._allocate("load")
        return super().load(source)

    def argmax(self, *arguments: Any) -> None:
        self._allocate("argmax")
        super().argmax(*arguments)

    def _allocate(self, kernel: str) -> None:
        if kernel == self.dies_in:
            raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nGPU 0 has a")
