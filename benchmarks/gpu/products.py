"""Quantised products at a model's layer shapes: how fast weights stream, for a few rows of x.

Weights come from more memory than a cache holds. GB/s are bytes of the file's encoding per second,
the share is of the copy bandwidth, which counts bytes read and written. Outputs of some rows of
each matrix are compared with the NumPy reference in bytes; what differs has no speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from harness import Table

from gpu.mixtures import choice_of, copied, file_bytes, mixed, reference_rows, small_matrix
from gpu.parts import Findings, Setting
from gpu.timing import cold_bytes, ratio, shown
from specla.backends.base import Weight
from specla.backends.numpy.backend import NumpyBackend

CHECKED = 64
"""Rows of a matrix that are compared, the first and the last among them."""
MOST_COPIES = 64


def products(setting: Setting, findings: Findings) -> None:
    """All kinds, matrices and numbers of rows."""
    sizes = setting.sizes
    bandwidth = setting.timer.copy_bandwidth(setting.device, sizes.copy_bytes)
    findings.figures["copy_bandwidth"] = bandwidth
    columns = [f"n = {n}, GB/s (share)" for n in sizes.rows]
    table = Table("kind", "matrix", "rows x columns", "MB", *columns)
    backend = setting.backend()
    for kind in sizes.kinds:
        for name, rows, cols in sizes.matrices:
            if setting.clock.over:
                findings.left_out.append(f"{kind} {name}")
                continue
            matrix = _Matrix(setting, findings, backend, f"{kind} {name}", kind, rows, cols)
            found = [_figures(matrix, n, bandwidth) for n in sizes.rows]
            for row in found:
                findings.rows("products").append({"kind": kind, "matrix": name, **row})
            table.row(kind, name, f"{rows} x {cols}", matrix.n_bytes / 1e6, *map(_cell, found))


def _figures(matrix: _Matrix, n: int, bandwidth: float | None) -> dict[str, Any]:
    seconds = matrix.seconds(n)
    speed = ratio(float(matrix.n_bytes), seconds)
    return {
        "n": n,
        "n_bytes": matrix.n_bytes,
        "seconds": seconds,
        "bytes_per_second": speed,
        "share": ratio(speed, bandwidth),
    }


def _cell(row: dict[str, Any]) -> Any:
    if row["share"] is None:
        return shown(row["bytes_per_second"], 1e-9)
    return f"{row['bytes_per_second'] / 1e9:.0f} ({100 * row['share']:.0f} %)"


class _Matrix:
    """A matrix, as many copies of it as keep caches cold, and rows for the reference."""

    def __init__(
        self,
        setting: Setting,
        findings: Findings,
        backend: Any,
        name: str,
        kind: str,
        rows: int,
        cols: int,
    ) -> None:
        import torch

        self.setting, self.findings, self.backend, self.name = setting, findings, backend, name
        self.n_bytes = file_bytes(kind, rows, cols)
        self.random = torch.Generator(setting.device).manual_seed(rows)
        small = small_matrix(backend, kind, cols)
        choice = choice_of(small, rows, self.random, setting.device)
        first = mixed(small, name, choice)
        others = min(MOST_COPIES, cold_bytes(setting.device) // self.n_bytes)
        self.copies: list[Weight] = [first, *(copied(first) for _ in range(others))]
        spread = np.linspace(0, rows - 1, min(CHECKED, rows)).astype(np.int64)
        self.wanted = np.unique(spread)
        self.reference = reference_rows(small, choice, self.wanted, NumpyBackend())

    def seconds(self, n: int) -> float | None:
        """Of one product with n rows, if its outputs are right."""
        x, out = self._rows(n), self.backend.empty((n, self.copies[0].source.rows))
        quantised = self.backend.quantised_rows(*x.shape)
        self.backend.quantise(x, quantised)
        self.backend.linear_quantised(quantised, self.copies[0], out)
        if not self._right(x, out):
            self.findings.problem(f"{self.name}, n = {n}: outputs differ from the reference's")
            return None
        seconds = self.setting.timer.seconds(
            f"{self.name}, n = {n}", lambda: self._all(quantised, out)
        )
        return None if seconds is None else seconds / len(self.copies)

    def _rows(self, n: int) -> Any:
        import torch

        size = (n, self.copies[0].source.cols)
        return torch.randn(size, generator=self.random, device=self.setting.device)

    def _all(self, quantised: Any, out: Any) -> None:
        for weight in self.copies:
            self.backend.linear_quantised(quantised, weight, out)

    def _right(self, x: Any, out: Any) -> bool:
        numpy, host = NumpyBackend(), self.backend.download(x)
        quantised = numpy.quantised_rows(*host.shape)
        numpy.quantise(host, quantised)
        wanted = numpy.empty((len(host), len(self.wanted)))
        numpy.linear_quantised(quantised, self.reference, wanted)
        found = self.backend.download(out)[:, self.wanted]
        return bool(np.isfinite(found).all()) and found.tobytes() == wanted.tobytes()


def speeds_of_kinds(rows: list[dict[str, Any]]) -> Iterator[tuple[str, int, float | None]]:
    """(kind, n, bytes per second of all its matrices together); None if one of them has no time."""
    for kind, n in dict.fromkeys((row["kind"], row["n"]) for row in rows):
        these = [row for row in rows if (row["kind"], row["n"]) == (kind, n)]
        seconds = [row["seconds"] for row in these]
        known = None if None in seconds else sum(seconds)
        yield kind, n, ratio(float(sum(row["n_bytes"] for row in these)), known)
