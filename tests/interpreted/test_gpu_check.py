"""benchmarks/gpu_check.py end to end in the interpreter, tiny and without times.

Run with TRITON_INTERPRET=1: python -m pytest -m triton tests/interpreted
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from interpreted.needs import MARKS, need_interpreter

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

need_interpreter()

import gpu_check  # noqa: E402
from gpu import products as products_part  # noqa: E402
from gpu import recurrence as recurrence_part  # noqa: E402
from gpu.forests import forest  # noqa: E402
from gpu.inexact import free_backend, free_module, fused  # noqa: E402
from gpu.launching import changed, counted  # noqa: E402
from gpu.mixtures import choice_of, mixed, reference_rows, small_matrix  # noqa: E402
from gpu.parts import Clock, Findings, Setting  # noqa: E402
from gpu.sizes import TINY  # noqa: E402
from gpu.snapshot import SnapshotVerify  # noqa: E402
from gpu.timing import Timer  # noqa: E402
from gpu.verify_inputs import verify_inputs  # noqa: E402

from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton import gdn, launch  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402

pytestmark = [
    *MARKS,
    # warned of once for each of NumPy's read-only arrays
    pytest.mark.filterwarnings("ignore:The given NumPy array is not writable"),
]


class OneSecond(Timer):
    """Takes a second for everything."""

    def seconds(self, name: str, run: Callable[[], object]) -> float | None:
        return 1.0

    def copy_bandwidth(self, device: str, size: int) -> float | None:
        return 1e9


@pytest.fixture
def setting() -> Setting:
    return Setting(TINY, "cpu", False, OneSecond(rehearsal=False), Clock(600))


@pytest.mark.parametrize("part", gpu_check.SHARES)
def test_every_part_can_be_rehearsed(
    part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "result.json"
    assert gpu_check.main(["--rehearse", "--only", part, "--out", str(out)]) == 0
    report = json.loads(out.read_text())
    assert report["rehearsal"] is True and list(report["parts"]) == [part]
    found = report["parts"][part]
    assert (found["status"], found["problems"], found["left_out"]) == ("done", [], [])
    assert {goal["verdict"] for goal in report["goals"]} == {"not measured"}
    printed = capsys.readouterr().out
    assert "rehearsal" in printed and f"| {part} | done | 0 |" in printed
    _check_figures(part, found)
    assert not [path for path in tmp_path.iterdir() if path != out]


def _check_figures(part: str, found: dict[str, Any]) -> None:
    if part == "correctness":
        assert [len(row["equal"]) for row in found["comparisons"]] == [4, 1, 4]
    if part == "recurrence":
        rows = [(row["nodes"], row["form"], row["batch"]) for row in found["verify"]]
        one = [(1, "chain"), (3, "chain"), (3, "tree")]
        assert rows == [(*row, batch) for batch in (1, 2) for row in one]
    if part == "products":
        assert [row["kind"] for row in found["products"]] == list(TINY.kinds)
    if part == "decoding":
        assert {row["accept_length"] for row in found["replay"]} == {2.0}
        assert [row["form"] for row in found["replay"]] == ["chain", "tree, 2 children"]
        assert all(count > 20 for count in found["launches"].values())
    timed = ("verify", "snapshots", "inexact", "price", "seconds", "share", "speed_up", "round")
    rows = [row for rows in found.values() if isinstance(rows, list) for row in rows]
    assert found["seconds"] is None
    assert all(row.get(name) is None for row in rows for name in timed)


@pytest.mark.parametrize("form", ["chain", "tree"])
def test_the_baseline_has_our_kernels_bytes(form: str, setting: Setting) -> None:
    backend = TritonBackend("cpu")
    inputs = verify_inputs(setting, backend, forest(form, 5, 2), pending=3)
    inputs.verify(backend, 0)
    ours = backend.download(inputs.out)
    baseline = SnapshotVerify.of(inputs, cold=0)
    baseline.verify(0)
    found = backend.download(baseline.out)
    assert np.isfinite(found).all() and found.tobytes() == ours.tobytes()
    # it keeps states, each other than its parent's
    states = backend.download(baseline.snapshots)[0]
    assert len({state.tobytes() for state in states}) == 10


def test_the_inexact_twin_is_another_kernel_and_close(
    setting: Setting, asked: list[dict[str, Any]]
) -> None:
    with free_module() as module:
        text = Path(module.__file__ or "").read_text()
    assert "tl.sum(" in text and "halves_of_rows(" not in text
    assert "halves_of_rows(" in Path(gdn.__file__).read_text()
    with free_backend("cpu") as free:
        assert type(free).gdn_verify is not TritonBackend.gdn_verify
        inputs = verify_inputs(setting, free, forest("chain", 4, 1), pending=0)
        inputs.verify(TritonBackend("cpu"), 0)
        ours = free.download(inputs.out)
        inputs.out.fill_(float("nan"))
        asked.clear()
        with fused():
            inputs.verify(free, 0)
        theirs = free.download(inputs.out)
    assert asked and all(options["enable_fp_fusion"] for options in asked)
    assert theirs.tobytes() != ours.tobytes()
    assert np.abs(theirs - ours).max() < 1e-5 * np.abs(ours).max()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Compiler options of the launches that came to the device."""
    options: list[dict[str, Any]] = []
    on_device = launch.on_device

    def noting(one: launch.Launch) -> None:
        options.append(one.options)
        on_device(one)

    monkeypatch.setattr(launch, "on_device", noting)
    return options


def test_warps_are_overridden_and_launches_counted(asked: list[dict[str, Any]]) -> None:
    backend = TritonBackend("cpu")
    x, out = backend.zeros((2, 8)), backend.empty((2, 8))
    with changed(num_warps=2):
        backend.add(x, x, out)
    assert [options["num_warps"] for options in asked] == [2]
    assert asked[0]["enable_fp_fusion"] is False
    with counted() as count:
        backend.add(x, x, out)
        backend.add(x, x, out)
    assert count.launches == 2 and launch.taker() is launch.on_device


def test_mixtures_are_matrices_of_their_kind(setting: Setting) -> None:
    import torch

    backend = TritonBackend("cpu")
    small = small_matrix(backend, "Q6_K", 512)
    choice = choice_of(small, 70, torch.Generator().manual_seed(1), "cpu")
    weight = mixed(small, "large", choice)
    assert (weight.source.rows, weight.source.cols) == (70, 512) and not weight.source.data.size
    tokens = np.array([0, 33, 69], np.int32)
    out = backend.empty((3, 512))
    backend.embed(backend.upload(tokens), weight, out)
    wanted = np.empty((3, 512), np.float32)
    reference = NumpyBackend()
    rows = reference_rows(small, choice, tokens.astype(np.int64), reference)
    reference.embed(np.arange(3, dtype=np.int32), rows, wanted)
    found = backend.download(out)
    assert found.tobytes() == wanted.tobytes()
    assert 0.8 < found.std() * 512**0.5 < 1.2


def test_a_wrong_product_has_no_speed(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    right = TritonBackend.linear_quantised

    def wrong(backend: Any, x: Any, weight: Any, out: Any) -> None:
        right(backend, x, weight, out)
        if weight.source.kind == "Q5_K":
            out[:, -1] *= 1.0000002

    monkeypatch.setattr(TritonBackend, "linear_quantised", wrong)
    findings = Findings()
    products_part.products(setting, findings)
    speeds = {row["kind"]: row["bytes_per_second"] for row in findings.figures["products"]}
    assert [kind for kind, speed in speeds.items() if speed is None] == ["Q5_K"]
    (problem,) = findings.problems
    assert problem == "Q5_K FFN down, n = 2: outputs differ from the reference's"
    assert f"WRONG: {problem}" in capsys.readouterr().out


def test_a_wrong_recurrence_has_no_time(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    right = TritonBackend.gdn_verify

    def wrong(backend: Any, *arguments: Any) -> None:
        right(backend, *arguments)
        arguments[-1][-1] *= 1.0000002

    monkeypatch.setattr(TritonBackend, "gdn_verify", wrong)
    setting.sizes = replace(TINY, nodes=(4,), batches=(1,))
    findings = Findings()
    recurrence_part.recurrence(setting, findings)
    rows = findings.figures["verify"]
    assert rows and all(row["verify"] is None and row["price"] is None for row in rows)
    assert {row["inexact"] for row in rows} == {1.0}
    assert any(line.startswith("verify, 4 nodes, tree, batch 1: out") for line in findings.problems)
