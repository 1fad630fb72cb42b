"""What each instruction does, by its name. Each module enters its own."""

from __future__ import annotations

from importlib import import_module

from ptx.ops.table import Operation, operation_of

for _module in (
    *("integer", "floating", "predicates", "conversion", "transfer", "warp", "tensor"),
    "group",
):
    import_module(f"{__name__}.{_module}")

__all__ = ["Operation", "operation_of"]
