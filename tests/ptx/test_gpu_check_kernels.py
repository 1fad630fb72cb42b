"""Compiled code of what benchmarks/gpu_check.py sets beside specla's recurrence."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from ptx.needs import need_compiler

need_compiler()
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import torch  # noqa: E402
from gpu.forests import forest  # noqa: E402
from gpu.inexact import free_backend, fused  # noqa: E402
from gpu.parts import Clock, Setting  # noqa: E402
from gpu.sizes import TINY  # noqa: E402
from gpu.snapshot import SnapshotVerify  # noqa: E402
from gpu.timing import Timer  # noqa: E402
from gpu.verify_inputs import VerifyInputs, verify_inputs  # noqa: E402

from ptx.compile import compile_for, describe  # noqa: E402
from ptx.run import EmulatedLauncher, emulated  # noqa: E402
from specla.backends.triton import launch  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402

pytestmark = pytest.mark.triton


def _inputs(backend: Any, form: str) -> VerifyInputs:
    setting = Setting(TINY, "cpu", True, Timer(rehearsal=True), Clock(60))
    return verify_inputs(setting, backend, forest(form, 4, 1), pending=0)


def test_the_baselines_code_has_the_references_bytes() -> None:
    backend = TritonBackend(torch.device("cpu"))
    inputs = _inputs(backend, "tree")
    wanted = inputs.reference()["out"]
    baseline = SnapshotVerify.of(inputs, cold=0)
    launcher = EmulatedLauncher()
    with emulated(launcher):
        baseline.verify(0)
    assert launcher.launched == ["_node"] * len(baseline.waves)
    assert backend.download(baseline.out).tobytes() == wanted.tobytes()


def test_fusion_is_on_in_the_inexact_twin_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hook's options reach the compiler: the same launches with and without contraction."""
    contracted = []

    def noting(asked: launch.Launch) -> None:
        found, _ = describe(asked.kernel, asked.arguments, asked.meta, asked.options)
        contracted.append("fma.rn" in compile_for(found, "sm_90").asm["ptx"])

    monkeypatch.setattr(launch, "on_device", noting)
    with free_backend(torch.device("cpu")) as free:
        inputs = _inputs(free, "chain")
        inputs.verify(TritonBackend(torch.device("cpu")), 0)
        assert contracted and not any(contracted)
        contracted.clear()
        with fused():
            inputs.verify(free, 0)
        assert contracted and all(contracted)
