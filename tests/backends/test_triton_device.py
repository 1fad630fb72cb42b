"""Which GPU is chosen, what is said of it, and every way in which there is none: without torch."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from backends.fake_torch import Device, FakeTorch, OutOfMemoryError, amd, nvidia

from specla.backends.triton import launch
from specla.backends.triton.code_folder import is_empty
from specla.errors import OptionError

Load = Callable[[FakeTorch], Any]
FAKED = ("torch", "triton", "specla.backends.triton.device", "specla.backends.triton.gpus")


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch) -> Iterator[Load]:
    """load(torch): the module `device`, imported anew on top of it."""
    before = {name: sys.modules.pop(name, None) for name in FAKED}
    monkeypatch.setattr(launch, "INTERPRETED", False)
    for name in ("SPECLA_DEVICE", "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)

    def on(torch: FakeTorch) -> Any:
        for name in FAKED:
            sys.modules.pop(name, None)
        triton = ModuleType("triton")
        triton.__version__ = "3.9.0"  # type: ignore[attr-defined]
        sys.modules.update({"torch": torch, "triton": triton})
        return import_module("specla.backends.triton.device")

    yield on
    for name, module in before.items():
        sys.modules.pop(name, None)
        if module is not None:
            sys.modules[name] = module


@pytest.mark.parametrize(
    ("wanted", "device"), [(None, "cuda:0"), ("cuda", "cuda:0"), ("cuda:0", "cuda:0"),
                           ("cuda:1", "cuda:1")]
)  # fmt: skip
def test_a_gpu_is_chosen(load: Load, wanted: str | None, device: str) -> None:
    torch = FakeTorch(nvidia(), nvidia())
    assert str(load(torch).choose(wanted)) == device
    assert torch.asked == [device], "it is tried before anything is loaded"
    assert torch.current == [device], "Triton launches on the current device"


def test_the_environment_names_one_too(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(FakeTorch(nvidia(), nvidia()))
    monkeypatch.setenv("SPECLA_DEVICE", "cuda:1")
    assert str(loaded.choose()) == "cuda:1"
    assert str(loaded.choose("cuda:0")) == "cuda:0"


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(OptionError) as refused:
        call()
    text = str(refused.value)
    assert "\n" not in text
    return text


@pytest.mark.parametrize(
    "wanted", ["cuda:2", "cuda:99999", "hip:0", "gpu", "0", "cuda:", "cuda:-1"]
)
def test_a_device_that_is_not_there(load: Load, wanted: str) -> None:
    loaded = load(FakeTorch(nvidia(), nvidia("NVIDIA A100", 8)))
    assert refusal(lambda: loaded.choose(wanted)) == (
        f"device {wanted!r} (--device or SPECLA_DEVICE) isn't there; this machine has cuda:0 "
        f"(NVIDIA H200), cuda:1 (NVIDIA A100)"
    )


def test_the_cpu_is_no_gpu(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(FakeTorch(nvidia()))
    said = refusal(lambda: loaded.choose("cpu"))
    assert "is no GPU" in said and "--backend numba" in said and "TRITON_INTERPRET=1" in said
    monkeypatch.setattr(launch, "INTERPRETED", True)
    assert str(loaded.choose()) == str(loaded.choose("cpu")) == "cpu"
    assert "TRITON_INTERPRET is set" in refusal(lambda: loaded.choose("cuda:0"))


def test_who_takes_the_launches_says_where(load: Load) -> None:
    loaded = load(FakeTorch())
    with launch.launches_to(lambda asked: None):
        assert str(loaded.choose("cpu")) == "cpu"


@pytest.mark.parametrize(
    ("torch", "words"),
    [
        (
            FakeTorch(version="2.13.0+cpu", cuda=None),
            "torch 2.13.0+cpu finds none: it is built for the CPU only; install a build for",
        ),
        (
            FakeTorch(
                reason=RuntimeError(
                    "Found no NVIDIA driver on your system. Please check that you\nhave one"
                )
            ),
            "none: Found no NVIDIA driver on your system; install or update the GPU's driver; use",
        ),
        (
            FakeTorch(
                reason=RuntimeError("The driver is too old (found version 11.4). Please update")
            ),
            "none: The driver is too old (found version 11.4); install or update",
        ),
        (
            FakeTorch(cuda=None, hip="6.4.1", reason=RuntimeError("No HIP GPUs are available")),
            "none: No HIP GPUs are available; install or update",
        ),
        (FakeTorch(), "it gives no reason"),
    ],
)
def test_no_gpu(load: Load, torch: FakeTorch, words: str) -> None:
    said = refusal(load(torch).choose)
    assert said.startswith("backend 'triton' needs a GPU, and torch ") and words in said
    assert said.endswith("or try this one slowly on the CPU with TRITON_INTERPRET=1")


def test_a_hidden_gpu(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(FakeTorch(reason=RuntimeError("No CUDA GPUs are available")))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert "CUDA_VISIBLE_DEVICES is '', unset it" in refusal(loaded.choose)


def test_a_gpu_that_triton_does_not_serve(load: Load) -> None:
    loaded = load(FakeTorch(nvidia("Tesla T4", 7, 5), nvidia()))
    said = refusal(loaded.choose)
    assert said.startswith("cuda:0, Tesla T4, is sm_75; Triton needs sm_80")
    assert str(loaded.choose("cuda:1")) == "cuda:1"


def test_a_gpu_in_somebody_elses_hands(load: Load) -> None:
    busy = RuntimeError("CUDA error: all devices are busy\nCompile with TORCH_USE_CUDA_DSA")
    loaded = load(FakeTorch(nvidia(), memory=busy))
    assert refusal(loaded.choose) == (
        "cuda:0, NVIDIA H200, can't be used: CUDA error: all devices are busy; use another device"
    )


def on_device(loaded: Any, device: Device) -> Any:
    made = loaded.Device()
    made.device = device
    return made


def test_facts_of_an_nvidia_gpu(
    load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(FakeTorch(nvidia()))
    (tmp_path / "version").write_text(
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"
        "GCC version: gcc version 13.2.0\n"
    )
    gpus = sys.modules["specla.backends.triton.gpus"]
    monkeypatch.setattr(gpus, "_NVIDIA", tmp_path / "version")
    described = on_device(loaded, Device("cuda:0")).describe()
    assert described == {
        "device": "cuda:0", "name": "NVIDIA H200", "architecture": "sm_90", "memory": 140 << 30,
        "runtime": "CUDA 12.8", "driver": "570.86.15", "torch": "2.13.0+cu128", "triton": "3.9.0",
    }  # fmt: skip
    monkeypatch.setattr(gpus, "_NVIDIA", tmp_path / "missing")
    assert on_device(loaded, Device("cuda:0")).describe()["driver"] is None


def test_facts_of_an_amd_gpu(load: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = load(FakeTorch(amd(), cuda=None, hip="6.4.1"))
    gpus = sys.modules["specla.backends.triton.gpus"]
    monkeypatch.setattr(gpus, "_AMD", tmp_path)
    described = on_device(loaded, Device("cuda:0")).describe()
    assert (described["architecture"], described["runtime"]) == ("gfx942", "HIP 6.4.1")
    assert described["driver"].startswith("of Linux ")
    (tmp_path / "version").write_text("6.12.12\n")
    assert on_device(loaded, Device("cuda:0")).describe()["driver"] == "6.12.12"


def test_memory_of_the_device_or_of_the_host(load: Load) -> None:
    loaded = load(FakeTorch(nvidia()))
    # what torch holds without using it is free
    assert on_device(loaded, Device("cuda:0")).memory() == (102 << 30, 140 << 30)
    assert on_device(loaded, Device("cpu")).memory() is None
    assert OutOfMemoryError in loaded.Device.out_of_memory


@pytest.fixture
def used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with compiled kernels."""
    (tmp_path / "kernel").touch()
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_a_first_run_on_a_gpu_is_announced(load: Load, used: Path) -> None:
    loaded = load(FakeTorch(nvidia()))
    (used / "kernel").unlink()
    for _ in range(2):
        (line,) = on_device(loaded, Device("cuda:0")).notes()
        assert line.startswith("Triton compiles kernels") and f"{used}, which is empty" in line
        assert on_device(loaded, Device("cpu")).notes() == (), "nothing is compiled here"
        if used.exists():
            used.rmdir()


def test_a_folder_for_compiled_code_that_cannot_be_one(
    load: Load, used: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load(FakeTorch(nvidia()))
    for folder in (used / "kernel", used / "kernel" / "inner", Path("/proc/version/inner")):
        monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
        assert f"in {folder}; set TRITON_CACHE_DIR to" in refusal(loaded.choose)
        assert not is_empty(folder) or not folder.exists()
    monkeypatch.setenv("TRITON_CACHE_DIR", "")
    assert refusal(loaded.choose).startswith("TRITON_CACHE_DIR is empty; unset it")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(used / "not" / "yet"))
    assert str(loaded.choose()) == "cuda:0"


def test_a_strange_version_of_triton_is_noted(load: Load, used: Path) -> None:
    loaded = load(FakeTorch(nvidia()))
    made = on_device(loaded, Device("cuda:0"))
    assert made.notes() == ()
    sys.modules["triton"].__version__ = "3.11.0"  # type: ignore[attr-defined]
    (line,) = made.notes()
    assert line.startswith("Triton 3.11.0 is not among 3.6 to 3.9, with which specla is tested")
