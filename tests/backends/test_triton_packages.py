"""Asking for the GPU backend where torch or Triton is missing or broken; what matrices take."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import numpy as np
import pytest

from specla.backends import backends, create_backend
from specla.backends.base import Backend
from specla.backends.blocks import NATIVE
from specla.backends.triton import packages
from specla.backends.triton.packing import pack
from specla.backends.triton.sizes import kept_bytes
from specla.backends.weights import WeightSource
from specla.errors import OptionError
from specla.testing.kernels.products import random_source


def refused() -> str:
    with pytest.raises(OptionError) as refusal:
        create_backend("triton")
    text = str(refusal.value)
    assert text.startswith("backend 'triton' can't be used: ") and "\n" not in text
    return text


def test_it_is_registered() -> None:
    assert "triton" in backends.names() and backends.origin("triton") == "specla"


@pytest.mark.parametrize("gone", ["torch", "triton"])
def test_a_package_that_is_not_installed(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # before anything is imported: to import torch takes seconds
    monkeypatch.setattr(packages, "import_module", lambda name: pytest.fail(f"imports {name}"))
    monkeypatch.setattr(packages, "find_spec", lambda name: None if name == gone else object())
    said = refused()
    assert f"the package {gone} isn't installed" in said
    assert 'pip install "specla[triton]"' in said and "with a ROCm build of torch" in said


def test_no_package_is_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert packages.missing("torch") is not None
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert packages.missing("torch") is None


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (
            "raise OSError('libcudart.so.13:\\ncannot open shared object file')",
            "importing torch failed: OSError: libcudart.so.13: cannot open shared object file; ",
        ),
        ("import sys; sys.exit(3)", "importing torch failed: SystemExit: 3; install it anew"),
        ("", "is taken for the package torch, but isn't it; rename or remove it"),
    ],
)
def test_a_package_that_is_broken(
    code: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    (tmp_path / "torch.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packages, "missing", lambda name: None)
    assert words in refused()
    # not the fake one's
    sys.modules.pop("torch", None)


def test_a_folder_of_that_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specla_no_such_package").mkdir()
    monkeypatch.syspath_prepend(str(tmp_path))
    said = packages.broken("specla_no_such_package")
    sys.modules.pop("specla_no_such_package")
    assert said is not None and str(tmp_path) in said


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.9.0", "3.9.0+git1234", "unknown"])
def test_versions_that_are_tested(version: str) -> None:
    assert packages.untested(version) is None


@pytest.mark.parametrize("version", ["3.5.1", "3.10.0", "4.0", "2.3.1"])
def test_other_versions_are_noted(version: str) -> None:
    assert version in str(packages.untested(version))


def test_notes_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    from specla.backends.numpy.backend import NumpyBackend

    class Noted(NumpyBackend):
        def notes(self) -> tuple[str, ...]:
            return ("read this",)

    monkeypatch.setitem(backends._factories, "noted", lambda: Noted)
    told: list[str] = []
    create_backend("noted", note=told.append)
    assert told == ["read this"]
    with pytest.warns(UserWarning, match="read this"):
        create_backend("noted")


@pytest.mark.parametrize("kind", sorted(NATIVE))
@pytest.mark.parametrize(("rows", "blocks"), [(1, 1), (5, 3), (64, 2)])
def test_bytes_of_a_matrix_are_those_of_its_arrays(kind: str, rows: int, blocks: int) -> None:
    source = random_source(np.random.default_rng(1), kind, rows, blocks, "ordinary")
    packed = pack(source)
    held = [getattr(packed, field.name) for field in fields(packed)]
    # what a kind doesn't have is an array of one zero
    assert kept_bytes(source) == sum(array.nbytes for array in held if array.ndim > 1)


def test_bytes_of_floats() -> None:
    def matrix(kind: str, row_bytes: int) -> WeightSource:
        return WeightSource("w", kind, 3, 64, np.zeros((3, row_bytes), np.uint8))

    assert kept_bytes(matrix("F16", 128)) == kept_bytes(matrix("BF16", 128)) == 3 * 128
    assert kept_bytes(matrix("F32", 256)) == 3 * 256
    assert kept_bytes(matrix("Q5_1", 48)) == 3 * 256, "widened"


def test_the_host_has_its_own_rules() -> None:
    backend = create_backend("numpy")
    assert isinstance(backend, Backend)
    assert (backend.memory(), backend.describe(), backend.notes()) == (None, {}, ())
    assert backend.out_of_memory == (MemoryError,)


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("Failed to find C compiler.\nPlease specify via CC."),
        subprocess.CalledProcessError(1, ["gcc", "driver.c"]),
    ],
)
def test_no_c_compiler(error: Exception) -> None:
    from specla.backends.triton.launch import Launch, on_device

    class Kernel:
        def __getitem__(self, grid: object) -> NoReturn:
            raise error

    with pytest.raises(OptionError, match="python3-dev") as caught:
        on_device(Launch(Kernel(), (1,), (), {}, {}))
    assert len(str(caught.value).splitlines()) == 1


def test_other_failures_of_a_launch_stay_what_they_are() -> None:
    from specla.backends.triton.launch import Launch, on_device

    class Kernel:
        def __getitem__(self, grid: object) -> NoReturn:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

    with pytest.raises(RuntimeError, match="illegal memory access"):
        on_device(Launch(Kernel(), (1,), (), {}, {}))
