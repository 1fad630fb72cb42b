"""What tests in Triton's interpreter need: torch, triton, and TRITON_INTERPRET=1, but no GPU.

They are marked ``triton``.
"""

from __future__ import annotations

import os
from typing import Any

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
    _let_numbers_be_bounds()


def _let_numbers_be_bounds() -> None:
    """Triton 3.6 makes the bound of a loop with int(), which NumPy 2.4 refuses for an array of one
    number. Later versions do what this does."""
    from triton.runtime import interpreter

    patch: Any = interpreter._patch_lang_tensor
    if hasattr(patch, "before"):
        return

    def patched(tensor: Any, scope: Any) -> None:
        patch(tensor, scope)
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    patched.before = patch  # type: ignore[attr-defined]
    interpreter._patch_lang_tensor = patched
