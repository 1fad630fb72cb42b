"""The GPUs that torch finds here, and why it finds none."""

from __future__ import annotations

import os
import platform
import re
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

VISIBLE = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES")
"""Environment variables that hide GPUs from torch."""

_NVIDIA, _AMD = Path("/proc/driver/nvidia/version"), Path("/sys/module/amdgpu")


@dataclass(frozen=True)
class Gpu:
    """device: as torch names it, on HIP too.  architecture: sm_90, gfx942.  memory: bytes.
    runtime: what torch is built for.  driver: of the kernel, None where it can't be told."""

    device: str
    name: str
    architecture: str
    memory: int
    runtime: str | None
    driver: str | None

    def facts(self) -> dict[str, Any]:
        """As JSON-able values."""
        return asdict(self)


def runtime() -> str | None:
    """What torch is built for: "CUDA 12.8", "HIP 6.4"; None for the CPU only."""
    if (hip := getattr(torch.version, "hip", None)) is not None:
        return f"HIP {hip}"
    return None if torch.version.cuda is None else f"CUDA {torch.version.cuda}"


def no_gpu() -> str | None:
    """Why torch finds no GPU, and what helps; None where it finds one."""
    with warnings.catch_warnings():
        # what it would warn of is said below
        warnings.simplefilter("ignore")
        if torch.cuda.is_available():
            return None
        if runtime() is None:
            return (
                "it is built for the CPU only; install a build for your GPU, see "
                "https://pytorch.org/get-started"
            )
        return f"{_reason()}; {_remedy()}"


def _reason() -> str:
    """Torch's own first sentence."""
    try:
        torch.cuda.init()
    except Exception as error:
        return re.split(r"\.\s", " ".join(str(error).split()))[0].rstrip(".")
    return "it gives no reason"


def _remedy() -> str:
    for name in VISIBLE:
        if (value := os.environ.get(name)) is not None:
            return f"{name} is {value!r}, unset it or let it name a GPU"
    return "install or update the GPU's driver"


def gpus() -> list[Gpu]:
    """All of them; none where :func:`no_gpu` has a reason."""
    if no_gpu() is not None:
        return []
    return [gpu(index) for index in range(torch.cuda.device_count())]


def gpu(index: int) -> Gpu:
    """One of them, by its number."""
    found = torch.cuda.get_device_properties(index)
    amd = getattr(torch.version, "hip", None) is not None
    return Gpu(
        device=f"cuda:{index}",
        name=found.name,
        # "gfx942:sramecc+:xnack-" names features, too
        architecture=found.gcnArchName.split(":")[0] if amd else f"sm_{found.major}{found.minor}",
        memory=found.total_memory,
        runtime=runtime(),
        driver=driver(),
    )


def driver() -> str | None:
    """The kernel driver's version."""
    if getattr(torch.version, "hip", None) is not None:
        version = _read(_AMD / "version")
        # the driver in Linux itself has no version of its own
        return version or (f"of Linux {platform.release()}" if _AMD.exists() else None)
    numbers = re.search(r"\d+\.\d+(\.\d+)?", _read(_NVIDIA))
    return numbers[0] if numbers is not None else None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
