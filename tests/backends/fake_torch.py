"""Stands for torch and its GPUs where tests have neither."""

from __future__ import annotations

from types import ModuleType, SimpleNamespace
from typing import Any


class Device:
    """A torch.device: by name, "cuda:0"."""

    def __init__(self, name: str) -> None:
        self.type, _, number = name.partition(":")
        self.index = int(number) if number else None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class OutOfMemoryError(RuntimeError):
    """What torch raises."""


def nvidia(name: str = "NVIDIA H200", major: int = 9, minor: int = 0) -> Any:
    return SimpleNamespace(name=name, major=major, minor=minor, total_memory=140 << 30)


def amd(name: str = "AMD Instinct MI300X", arch: str = "gfx942:sramecc+:xnack-") -> Any:
    return SimpleNamespace(name=name, major=9, minor=4, total_memory=192 << 30, gcnArchName=arch)


class FakeTorch(ModuleType):
    """gpus: their properties.  cuda, hip: what it is built for.  reason: what its initialisation
    says.  memory: free bytes, or what is raised instead of an answer."""

    def __init__(
        self,
        *gpus: Any,
        version: str = "2.13.0+cu128",
        cuda: str | None = "12.8",
        hip: str | None = None,
        reason: Exception | None = None,
        memory: int | Exception = 100 << 30,
    ) -> None:
        super().__init__("torch")
        self.__version__ = version
        self.device = Device
        self.version = SimpleNamespace(cuda=cuda, hip=hip)
        self.asked: list[str] = []
        self.current: list[str] = []

        def init() -> None:
            if reason is not None:
                raise reason

        def mem_get_info(device: Any) -> tuple[int, int]:
            self.asked.append(str(device))
            if isinstance(memory, Exception):
                raise memory
            return memory, gpus[0].total_memory

        self.cuda = SimpleNamespace(
            OutOfMemoryError=OutOfMemoryError,
            is_available=lambda: bool(gpus),
            device_count=lambda: len(gpus),
            get_device_properties=lambda index: gpus[index],
            init=init,
            set_device=lambda device: self.current.append(str(device)),
            mem_get_info=mem_get_info,
            memory_reserved=lambda device: 3 << 30,
            memory_allocated=lambda device: 1 << 30,
        )
