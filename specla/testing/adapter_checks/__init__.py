"""The checks of an adapter, in the order in which they are made. Each module enters its own."""

from __future__ import annotations

from importlib import import_module

from specla.testing.subject import Subject
from specla.testing.table import Table

adapter_checks: Table[Subject] = Table("adapter")

for _module in ("protocol", "proposals", "sequences", "rollback", "engine"):
    import_module(f"{__name__}.{_module}")
