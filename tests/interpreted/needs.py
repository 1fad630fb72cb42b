"""What tests in Triton's interpreter need: torch, triton, and TRITON_INTERPRET=1, but no GPU.

They are marked ``triton``.
"""

from __future__ import annotations

import os

import pytest

MARKS = [
    pytest.mark.triton,
    # the interpreter computes with NumPy, which warns of what kernels do on purpose
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


def need_interpreter() -> None:
    """Skip the module that calls this first, where kernels aren't interpreted."""
    for package in ("torch", "triton"):
        pytest.importorskip(package, reason=f"could not import {package}")
    if os.environ.get("TRITON_INTERPRET", "0") != "1":
        pytest.skip("kernels are interpreted with TRITON_INTERPRET=1", allow_module_level=True)
