"""Every kernel on the device against the NumPy reference, byte by byte, then whole decodings.

Kernels run with several warps per program, which no bit may depend on. Cases and decodings are
those of ``specla.testing.check_backend``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
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
    for warps, examples in zip(setting.sizes.warps, setting.sizes.examples, strict=True):
        row = _kernels(setting, findings, warps, examples)
        table.row(row["name"], *map(len, (row["equal"], row["differ"], row["not_reached"])))
        if warps is None:
            row = _decodings(setting, findings)
            table.row(row["name"], *map(len, (row["equal"], row["differ"], row["not_reached"])))


def _kernels(
    setting: Setting, findings: Findings, warps: int | None, examples: int
) -> dict[str, Any]:
    asked = "as asked for" if warps is None else str(warps)
    backend, reference = setting.backend(), NumpyBackend()

    def check(name: str) -> None:
        bench.compare(name, kernel_cases.cases[name], backend, reference, examples)

    names = setting.sizes.kernels or tuple(kernel_cases.cases)
    with nullcontext() if warps is None else changed(num_warps=warps):
        title = f"kernels, warps {asked}, {examples} examples"
        return _compared(setting, findings, title, names, check)


def _decodings(setting: Setting, findings: Findings) -> dict[str, Any]:
    with _candidate(setting) as candidate:

        def check(name: str) -> None:
            tuple(backend_checks.run(candidate, [name], ()))

        title = "whole decodings, plain and with trees"
        return _compared(setting, findings, title, setting.sizes.decodings, check)


def _compared(
    setting: Setting,
    findings: Findings,
    title: str,
    names: Iterable[str],
    check: Callable[[str], None],
) -> dict[str, Any]:
    """The row of a table: what is equal, differs (and how), or was not reached in time."""
    row: dict[str, Any] = {"name": title, "equal": [], "differ": {}, "not_reached": []}
    findings.rows("comparisons").append(row)
    for name in names:
        if setting.clock.over:
            row["not_reached"].append(name)
            continue
        try:
            check(name)
        except Exception as error:  # whatever it is, the other checks can still be made
            line = " ".join(str(error).split())
            row["differ"][name] = line
            findings.problem(f"{title}: {name}: {line}")
        else:
            row["equal"].append(name)
    findings.left_out += [f"{title}: {name}" for name in row["not_reached"]]
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
