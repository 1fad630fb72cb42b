"""The GPU that is measured, or in one line what is missing and how to get it."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from specla.errors import OptionError

INTERPRET = "TRITON_INTERPRET"


def rehearsal_device() -> str:
    """Switch Triton's interpreter on. Raises OptionError where that is impossible."""
    _need_packages()
    if "triton" in sys.modules and os.environ.get(INTERPRET) != "1":
        raise OptionError(f"--rehearse comes too late, Triton is loaded; start with {INTERPRET}=1")
    os.environ[INTERPRET] = "1"
    return "cpu"


def gpu_device(name: str) -> str:
    """``name`` if torch has such a GPU and kernels are compiled. Raises OptionError."""
    _need_packages()
    if os.environ.get(INTERPRET, "0") == "1":
        raise OptionError(f"{INTERPRET} is 1, so nothing can be timed; unset it, or use --rehearse")
    import torch

    if not torch.cuda.is_available():
        raise OptionError(
            "no GPU: torch sees none; run this on a machine with an NVIDIA or AMD GPU and a torch "
            "built for it, or try the code with --rehearse"
        )
    count = torch.cuda.device_count()
    known = [f"cuda:{index}" for index in range(count)]
    if name not in known:
        raise OptionError(f"device {name!r} is unknown; use one of {', '.join(known)}")
    torch.cuda.set_device(name)
    return name


def _need_packages() -> None:
    for package in ("torch", "triton"):
        spec = find_spec(package)
        # a folder of that name on the path is no package
        if spec is None or spec.origin is None:
            raise OptionError(f"{package} isn't installed; pip install 'specla[triton]'")
