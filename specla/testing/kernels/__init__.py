"""A case for each method of the kernel protocol. Each module enters its own."""

from __future__ import annotations

from importlib import import_module

from specla.testing.kernels.bench import KernelCases

kernel_cases = KernelCases()

for _module in ("memory", "products", "rows", "recurrence", "attention", "choices", "drafts"):
    import_module(f"{__name__}.{_module}")
