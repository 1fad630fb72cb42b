"""Conformance kit for adapters and backends of other packages; see docs/testing-adapters.md.

Call it from your own tests: it needs neither pytest nor Hypothesis.
"""

from specla.testing.adapter import check_adapter
from specla.testing.adapter_checks import adapter_checks
from specla.testing.backend import backend_checks, check_backend
from specla.testing.errors import ConformanceError
from specla.testing.report import AdapterReport, BackendReport

__all__ = [
    "AdapterReport",
    "BackendReport",
    "ConformanceError",
    "adapter_checks",
    "backend_checks",
    "check_adapter",
    "check_backend",
]
