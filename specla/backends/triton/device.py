"""Where this backend computes: a GPU that is there, or the host in Triton's interpreter."""

from __future__ import annotations

import re
from typing import Any

import torch

from specla.backends.options import wanted_device
from specla.backends.triton import launch
from specla.backends.triton.code_folder import code_folder, is_empty, require_folder
from specla.backends.triton.gpus import Gpu, gpu, gpus, no_gpu
from specla.backends.triton.packages import untested
from specla.backends.triton.sizes import kept_bytes
from specla.backends.weights import WeightSource
from specla.errors import OptionError

LEAST = 80
"""The oldest NVIDIA architecture that Triton compiles for: sm_80."""

INTERPRETER = "Triton's interpreter on the CPU"
_SLOWLY = "use --backend numba, or try this one slowly on the CPU with TRITON_INTERPRET=1"


def choose(wanted: str | torch.device | None = None) -> torch.device:
    """The device to compute on.

    wanted: "cuda:0"; None is SPECLA_DEVICE, then the first GPU, or the host where kernels are
    interpreted. A ``torch.device`` is taken as it is, for those who take the launches themselves.
    A GPU that is chosen becomes this thread's current one.
    Raises OptionError, one line, for a device that isn't there or can't be used.
    """
    if isinstance(wanted, torch.device):
        return wanted
    wanted = wanted_device(wanted)
    host: torch.device = torch.device("cpu")
    if launch.INTERPRETED:
        if wanted not in (None, "cpu"):
            raise OptionError(
                f"{_named(wanted)} asked for, but TRITON_INTERPRET is set, which runs kernels on "
                f"the CPU; unset it, or leave the device out"
            )
        return host
    if wanted == "cpu":
        if launch.taker() is not launch.on_device:
            return host
        raise OptionError(f"{_named(wanted)} is no GPU, and backend 'triton' needs one; {_SLOWLY}")
    chosen = torch.device(_usable(wanted).device)
    require_folder()
    # launches look after it themselves; torch's own defaults follow it
    torch.cuda.set_device(chosen)
    return chosen


def _usable(wanted: str | None) -> Gpu:
    if (why := no_gpu()) is not None:
        raise OptionError(
            f"backend 'triton' needs a GPU, and torch {torch.__version__} finds none: {why}; "
            f"{_SLOWLY}"
        )
    found = {one.device: one for one in gpus()}
    number = re.fullmatch(r"cuda(?::(\d{1,4}))?", wanted or "cuda")
    chosen = found.get(f"cuda:{int(number[1] or 0)}") if number is not None else None
    if chosen is None:
        there = ", ".join(f"{one.device} ({one.name})" for one in found.values())
        raise OptionError(f"{_named(wanted)} isn't there; this machine has {there}")
    sm = re.fullmatch(r"sm_(\d+)", chosen.architecture)
    if sm is not None and int(sm[1]) < LEAST:
        raise OptionError(
            f"{chosen.device}, {chosen.name}, is {chosen.architecture}; Triton needs sm_{LEAST} or "
            f"newer; use another GPU, or --backend numba"
        )
    try:
        torch.cuda.mem_get_info(chosen.device)
    except Exception as error:  # full, in another process's exclusive use, fallen off the bus
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise OptionError(
            f"{chosen.device}, {chosen.name}, can't be used: {lines[0]}; use another device"
        ) from None
    return chosen


def _named(wanted: str | None) -> str:
    return f"device {wanted!r} (--device or SPECLA_DEVICE)"


class Device:
    """What the backend says of the place where it computes. device: a torch device."""

    device: torch.device
    out_of_memory: tuple[type[BaseException], ...] = (MemoryError, torch.cuda.OutOfMemoryError)

    def memory(self) -> tuple[int, int] | None:
        if self.device.type == "cpu":
            return None
        free, total = torch.cuda.mem_get_info(self.device)
        # what torch holds and doesn't use is free for the next array
        held = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return free + max(held, 0), total

    def kept_bytes(self, source: WeightSource) -> int:
        return kept_bytes(source)

    def describe(self) -> dict[str, Any]:
        """The fields of Gpu, and the versions of torch and Triton."""
        versions = {"torch": str(torch.__version__), "triton": _triton_version()}
        if self.device.type != "cpu":
            return {**gpu(self.device.index or 0).facts(), **versions}
        return {"device": "cpu", "name": INTERPRETER, **versions}

    def notes(self) -> tuple[str, ...]:
        return tuple(filter(None, [untested(_triton_version()), self._first_use()]))

    def _first_use(self) -> str | None:
        """What to expect on a GPU where nothing was compiled yet."""
        folder = code_folder()
        if self.device.type == "cpu" or not is_empty(folder):
            return None
        return (
            f"Triton compiles kernels when they are first used and keeps them in {folder}, which "
            f"is empty: this run takes longer than later ones"
        )


def _triton_version() -> str:
    import triton

    return str(triton.__version__)
