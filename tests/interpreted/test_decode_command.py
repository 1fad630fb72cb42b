"""`specla decode --backend triton` without a GPU: interpreted, as the reference writes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.cli_expected import PROMPT, plainly
from cli.cli_model import write_model
from cli.cli_process import command, environment

for _package in ("torch", "triton"):
    pytest.importorskip(_package, reason=f"could not import {_package}")
pytestmark = pytest.mark.triton


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


def specla(*argv: object, **changes: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: whether kernels are interpreted is fixed when Triton is imported."""
    variables = environment(**changes)
    variables.pop("SPECLA_DEVICE", None)
    return subprocess.run(command(*argv), env=variables, capture_output=True, text=True)


def test_it_writes_what_the_reference_writes(model: Path) -> None:
    # a prompt that repeats itself, so that there is something to verify
    argv = ("-p", f"{PROMPT} {PROMPT}", "-n", 2, "--backend", "triton", "--json")
    trees = ("--adapter", "ngram", "--budget", 1, "--adapter-opt", "min_match=1")
    done = specla("decode", model, *argv, *trees, TRITON_INTERPRET="yes")
    if "only 0-dimensional arrays can be converted" in done.stderr:
        pytest.skip("this Triton's interpreter is too old for this NumPy (Triton 3.6, NumPy 2.4)")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert report["tokens"] == plainly(model, report["prompt_tokens"], 2)
    assert report["stats"]["verified_rows"] > report["stats"]["rounds"]
    device = report["settings"]["device"]
    assert (report["settings"]["backend"], device["device"]) == ("triton", "cpu")
    assert device["torch"] and device["triton"]
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("backend: ")]
    assert line.startswith("backend: triton on Triton's interpreter on the CPU (cpu), context 256")
    assert "Warning" not in done.stderr


def test_a_gpu_is_asked_for_while_interpreted(model: Path) -> None:
    argv = ("-p", "x", "--backend", "triton", "--device", "cuda:0")
    done = specla("decode", model, *argv, TRITON_INTERPRET="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1 and "TRITON_INTERPRET is set" in done.stderr


def test_without_a_gpu(model: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    done = specla("decode", model, "-p", "x", "--backend", "triton", TRITON_INTERPRET="0")
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "backend 'triton' needs a GPU, and torch" in done.stderr
    assert "TRITON_INTERPRET=1" in done.stderr


def test_the_doctor_knows_it() -> None:
    done = specla("doctor", "--json", TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    (entry,) = [entry for entry in found["backends"] if entry["name"] == "triton"]
    assert entry["problem"] is None and entry["device"]["device"] == "cpu"
    assert found["packages"]["triton"]["version"] == entry["device"]["triton"]
    assert found["variables"]["TRITON_INTERPRET"] == "1"
