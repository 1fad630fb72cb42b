"""What tests of compiled kernels need: torch and triton, but no GPU. They are marked ``triton``."""

from __future__ import annotations

import os

import pytest


def need_compiler() -> None:
    """Skip the module that calls this first, where kernels can't be compiled."""
    for package in ("torch", "triton"):
        pytest.importorskip(package, reason=f"could not import {package}")
    if os.environ.get("TRITON_INTERPRET", "0") == "1":
        pytest.skip("kernels are interpreted in this process", allow_module_level=True)
