"""A case for each method of the kernel protocol and each composition. Modules enter their own."""

from __future__ import annotations

from importlib import import_module

from specla.testing.kernels.bench import KernelCases

kernel_cases = KernelCases()

_MODULES = ("memory", "products", "rows", "recurrence", "attention", "choices", "drafts")
for _module in (*_MODULES, "compositions"):
    import_module(f"{__name__}.{_module}")
