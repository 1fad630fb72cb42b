"""The GPU that is measured, or in one line what is missing and how to get it."""

from __future__ import annotations

import os
import sys

from specla.backends.triton.packages import NEEDED, missing, require
from specla.errors import OptionError

INTERPRET = "TRITON_INTERPRET"


def rehearsal_device() -> str:
    """Switch Triton's interpreter on. Raises OptionError where that is impossible."""
    if why := next(filter(None, map(missing, NEEDED)), None):
        raise OptionError(why)
    if "triton" in sys.modules and os.environ.get(INTERPRET) != "1":
        raise OptionError(f"--rehearse comes too late, Triton is loaded; start with {INTERPRET}=1")
    os.environ[INTERPRET] = "1"
    return "cpu"


def gpu_device(name: str) -> str:
    """``name`` if there is such a GPU and kernels are compiled. Raises OptionError."""
    require()
    from specla.backends.triton import launch
    from specla.backends.triton.device import choose
    from specla.backends.triton.gpus import no_gpu

    if launch.INTERPRETED:
        raise OptionError(f"{INTERPRET} is set, so nothing can be timed; unset it, or --rehearse")
    if (why := no_gpu()) is not None:
        raise OptionError(f"no GPU: torch finds none: {why}; or try the code with --rehearse")
    return str(choose(name))
