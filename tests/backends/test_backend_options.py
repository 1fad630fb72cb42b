"""How a backend is chosen and told how to compute: precedence, defaults, refusals."""

from __future__ import annotations

import builtins
import os
from typing import Any

import pytest

import specla.backends as module
from specla.backends import BackendOptions, backends, best_backend, create_backend
from specla.backends.options import SMALL_MODEL, default_threads, usable_cpus
from specla.errors import OptionError


def test_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.backends.options.usable_cpus", lambda: 6)
    monkeypatch.delenv("SPECLA_THREADS", raising=False)
    resolve = BackendOptions.resolve
    assert resolve() == BackendOptions(1, None)
    assert resolve(model_bytes=SMALL_MODEL).threads == 6
    assert resolve(threads=2, level="avx2", model_bytes=SMALL_MODEL) == BackendOptions(2, "avx2")
    monkeypatch.setenv("SPECLA_THREADS", "4")
    assert resolve(model_bytes=SMALL_MODEL).threads == 4
    assert resolve(threads=2).threads == 2
    monkeypatch.setenv("SPECLA_THREADS", "")
    assert resolve().threads == 1


def test_default_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_threads(None) == default_threads(SMALL_MODEL - 1) == 1
    assert default_threads(SMALL_MODEL) == usable_cpus()
    monkeypatch.setattr("specla.backends.options.usable_cpus", lambda: 1000)
    assert default_threads(SMALL_MODEL) == 256


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs CPU affinity")
def test_only_cpus_of_this_process_count() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cpus() == 1
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize("value", ["0", "-1", "257", "1.5", "two", "1e2"])
def test_bad_threads(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLA_THREADS", value)
    with pytest.raises(OptionError, match=f"SPECLA_THREADS is '{value}'; it must be a whole numb"):
        create_backend("numba")
    monkeypatch.delenv("SPECLA_THREADS")
    with pytest.raises(OptionError, match="threads is 0; it must be a whole number"):
        create_backend("numba", threads=0)


def test_numba_gets_what_was_asked_for() -> None:
    backend: Any = create_backend("numba", threads=2, level="portable")
    assert (backend.name, backend.threads, backend.level) == ("numba", 2, "portable")


def test_numpy_computes_on_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    assert create_backend("numpy", threads=1).name == "numpy"
    monkeypatch.setenv("SPECLA_THREADS", "2")
    assert create_backend("numpy").name == "numpy", "the environment is for those that can"
    with pytest.raises(OptionError, match="'numpy' computes on one thread; leave --threads out"):
        create_backend("numpy", threads=2)
    with pytest.raises(OptionError, match="backend 'numpy' has no CPU levels; leave level out"):
        create_backend("numpy", level="avx2")


def test_a_foreign_backend_gets_the_options_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        def __init__(self, threads: int) -> None:
            self.threads = threads

    monkeypatch.setitem(backends._factories, "foreign", lambda: Foreign)
    monkeypatch.delenv("SPECLA_THREADS", raising=False)
    assert create_backend("foreign").threads == 1
    assert create_backend("foreign", threads=3).threads == 3
    with pytest.raises(OptionError, match="backend 'foreign' has no CPU levels"):
        create_backend("foreign", level="vnni")


def test_a_backend_with_devices_is_told_which(monkeypatch: pytest.MonkeyPatch) -> None:
    class Foreign:
        def __init__(self, device: str | None) -> None:
            self.device = device

    monkeypatch.setitem(backends._factories, "foreign", lambda: Foreign)
    monkeypatch.delenv("SPECLA_DEVICE", raising=False)
    assert create_backend("foreign").device is None
    assert create_backend("foreign", device="cuda:1").device == "cuda:1"
    monkeypatch.setenv("SPECLA_DEVICE", "cuda:2")
    assert create_backend("foreign").device == "cuda:2"
    assert create_backend("foreign", device="cuda:1").device == "cuda:1"
    monkeypatch.setenv("SPECLA_DEVICE", "")
    assert create_backend("foreign").device is None


def test_a_backend_without_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLA_DEVICE", "cuda:0")
    assert create_backend("numpy").name == "numpy", "the environment is for those that can"
    for name in ("auto", "numba", "numpy"):
        with pytest.raises(OptionError, match="takes no device; leave --device out or choose"):
            create_backend(name, device="cuda:0")


def test_auto_is_numba() -> None:
    assert best_backend() == ("numba", None)
    assert create_backend().name == "numba"


def _fail_to_import(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    real = builtins.__import__

    def importing(name: str, *rest: Any) -> Any:
        if name == "numba":
            raise error
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", importing)


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'numba'"),
        ImportError("Numba needs NumPy 2.5 or less"),
        OSError("Could not find/load shared object file"),
    ],
)
def test_without_numba(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    _fail_to_import(monkeypatch, error)
    told: list[str] = []
    assert create_backend("auto", note=told.append).name == "numpy"
    (line,) = told
    assert str(error) in line and "\n" not in line and "numpy" in line
    with pytest.warns(UserWarning, match="backend numpy, which is slow"):
        create_backend("auto")
    with pytest.raises(OptionError, match="backend numba can't be used"):
        create_backend("numba")


def test_a_defect_of_our_own_is_not_taken_for_a_missing_numba(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken() -> Any:
        raise ImportError("cannot import name 'x' from 'specla'")

    monkeypatch.setitem(backends._factories, "numba", broken)
    with pytest.raises(ImportError):
        create_backend("auto")


def test_the_module_offers_what_it_says() -> None:
    assert all(hasattr(module, name) for name in module.__all__)
