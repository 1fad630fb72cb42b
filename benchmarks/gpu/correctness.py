"""Every kernel on the device against the NumPy reference, byte by byte, then whole decodings.

Kernels run with several warps per program, which no bit may depend on. Cases and decodings are
those of ``specla.testing.check_backend``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import Table
from make_model import make_model

from gpu.launching import changed
from gpu.parts import Findings, Setting
from specla.backends.numpy.backend import NumpyBackend
from specla.models.load import bundled_model, open_model
from specla.testing.backend import Candidate, backend_checks
from specla.testing.errors import ConformanceError
from specla.testing.kernels import bench, kernel_cases


@dataclass
class _Short(Candidate):
    """With the beginning of the prompt only."""

    length: int = 1

    @property
    def prompt(self) -> list[int]:
        """The first ``length`` tokens."""
        return super().prompt[: self.length]


def correctness(setting: Setting, findings: Findings) -> None:
    """The kernels as they ask to be launched, whole decodings, then other numbers of warps."""
    table = Table("what", "equal", "differ", "not reached")
    sizes = setting.sizes
    for index, (warps, examples) in enumerate(zip(sizes.warps, sizes.examples, strict=True)):
        row = _kernels(setting, findings, warps, examples)
        table.row(row["name"], len(row["equal"]), len(row["differ"]), len(row["not_reached"]))
        if not index:
            row = _decodings(setting, findings)
            table.row(row["name"], len(row["equal"]), len(row["differ"]), len(row["not_reached"]))


def _kernels(
    setting: Setting, findings: Findings, warps: int | None, examples: int
) -> dict[str, Any]:
    asked = "as asked for" if warps is None else str(warps)
    row = _new_row(findings, f"kernels, warps {asked}, {examples} examples")
    backend, reference = setting.backend(), NumpyBackend()
    with nullcontext() if warps is None else changed(num_warps=warps):
        for name in setting.sizes.kernels or kernel_cases.cases:
            if setting.clock.over:
                row["not_reached"].append(name)
                continue
            try:
                bench.compare(name, kernel_cases.cases[name], backend, reference, examples)
            except ConformanceError as error:
                _differs(row, findings, name, error)
            else:
                row["equal"].append(name)
    _note_left_out(row, findings)
    return row


def _decodings(setting: Setting, findings: Findings) -> dict[str, Any]:
    row = _new_row(findings, "whole decodings, plain and with trees")
    with _candidate(setting) as candidate:
        for name in setting.sizes.decodings:
            if setting.clock.over:
                row["not_reached"].append(name)
                continue
            try:
                tuple(backend_checks.run(candidate, [name], ()))
            except Exception as error:  # whatever it is, the other checks can still be made
                _differs(row, findings, name, error)
            else:
                row["equal"].append(name)
    _note_left_out(row, findings)
    return row


@contextmanager
def _candidate(setting: Setting) -> Iterator[Candidate]:
    """With the bundled model, or one so small that even an interpreter decodes with it."""
    sizes, pair = setting.sizes, (setting.backend(), NumpyBackend())
    if sizes.engine_prompt is None:
        yield Candidate(*pair, open_model(bundled_model()), 0, sizes.engine_tokens)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.gguf"
        make_model(sizes.shape, "random", "Q8_0", path)
        yield _Short(*pair, open_model(path), 0, sizes.engine_tokens, length=sizes.engine_prompt)


def _new_row(findings: Findings, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {"name": name, "equal": [], "differ": {}, "not_reached": []}
    findings.rows("comparisons").append(row)
    return row


def _differs(row: dict[str, Any], findings: Findings, name: str, error: Exception) -> None:
    line = " ".join(str(error).split())
    row["differ"][name] = line
    findings.problem(f"{row['name']}: {name}: {line}")


def _note_left_out(row: dict[str, Any], findings: Findings) -> None:
    findings.left_out += [f"{row['name']}: {name}" for name in row["not_reached"]]
