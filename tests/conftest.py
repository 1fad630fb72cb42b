"""Fixtures shared by all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.chosen import CPU_BACKENDS, computing_on

settings.register_profile(
    "default", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("default")

REPOSITORY = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of golden files beside the checkout; tests that need it skip without it."""
    folder = REPOSITORY.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip(f"golden data not present: {folder.name} folder beside the checkout is missing")
    return folder


@pytest.fixture(scope="module", params=CPU_BACKENDS)
def backend_name(request: pytest.FixtureRequest) -> Iterator[str]:
    """Runs a module's tests on each backend; tiny targets and drivers then compute on it."""
    with computing_on(request.param) as name:
        yield name
