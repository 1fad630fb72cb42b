"""GDN verify: time by nodes, beside its bytes, a snapshot per node, others, and its own free twin.

Times are of one layer, from a pass over all layers, whose states together are more than a cache
holds. Every case is checked first: layer 0 against the NumPy reference (one sequence) in bytes, the
baseline against specla's kernel in bytes, the inexact ones for being close. What fails has no time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from harness import Table

from gpu.forests import forest
from gpu.inexact import free_backend, fused
from gpu.linear_attention import LinearAttention, fused_recurrent
from gpu.parts import Findings, Setting
from gpu.snapshot import SnapshotVerify
from gpu.timing import cold_bytes, ratio, shown
from gpu.verify_inputs import VerifyInputs, verify_inputs

CLOSE = 1e-3
"""Largest difference of an inexact kernel, as a share of the largest output."""
COLUMNS = ("bytes, us", "over bytes", "snapshots, us", "fla, us", "inexact, us", "price, %")


def recurrence(setting: Setting, findings: Findings) -> None:
    """All numbers of nodes, chains and trees, batches."""
    bandwidth = setting.timer.copy_bandwidth(setting.device, setting.sizes.copy_bytes)
    fla = _fla(setting)
    findings.figures["copy_bandwidth"] = bandwidth
    findings.figures["fla"] = fla if isinstance(fla, str) else "measured"
    print(f"flash-linear-attention: {findings.figures['fla']}")
    table = Table("nodes", "form", "batch", "verify, us", *COLUMNS)
    with free_backend(setting.device) as free:
        for batch in setting.sizes.batches:
            for nodes in setting.sizes.nodes:
                for form in ("chain", "tree") if nodes > 1 else ("chain",):
                    name = f"{nodes} nodes, {form}, batch {batch}"
                    if setting.clock.over:
                        findings.left_out.append(name)
                        continue
                    case = _Case(setting, findings, name, form, nodes, batch)
                    row = case.measure(free, fla, bandwidth)
                    findings.rows("verify").append(row)
                    _print(table, row)


def _fla(setting: Setting) -> Any:
    return "not run in a rehearsal" if setting.rehearsal else fused_recurrent()


def _print(table: Table, row: dict[str, Any]) -> None:
    names = ("verify", "bytes", "over_bytes", "snapshots", "fla", "inexact", "price")
    scales = (1e6, 1e6, 1.0, 1e6, 1e6, 1e6, 100.0)
    cells = [shown(row[name], scale) for name, scale in zip(names, scales, strict=True)]
    table.row(row["nodes"], row["form"], row["batch"], *cells)


class _Case:
    """One forest."""

    def __init__(
        self, setting: Setting, findings: Findings, name: str, form: str, nodes: int, batch: int
    ) -> None:
        self.setting, self.findings, self.name = setting, findings, name
        self.size = {"nodes": nodes, "form": form, "batch": batch}
        self.backend = setting.backend()
        pending = min(nodes, setting.sizes.pending)
        trees = forest(form, nodes, batch)
        self.inputs: VerifyInputs = verify_inputs(setting, self.backend, trees, pending)

    def measure(self, free: Any, fla: Any, bandwidth: float | None) -> dict[str, Any]:
        """Seconds of each that is right, and what follows from them."""
        inputs = self.inputs
        right = self._run_first()
        # the pending factors are in the state now: all others start from there
        truth = inputs.out.clone()
        baseline = SnapshotVerify.of(inputs, cold_bytes(self.setting.device))
        baseline.verify(0)
        right_baseline = self._same("snapshots", {"out": (baseline.out, truth)})
        if self.size["batch"] > 1:
            # nobody else has judged a whole batch
            right = right_baseline
        with fused():
            inputs.verify(free, 0, settled=True)
            right_free = self._close("inexact", inputs.out, truth)
            inexact = self._time("inexact", right_free, lambda: inputs.verify_all(free))
        verify = self._time("verify", right, lambda: inputs.verify_all(self.backend))
        needed = ratio(float(inputs.n_bytes), bandwidth)
        price = ratio(verify, inexact)
        return {
            **self.size,
            "pending": inputs.pending,
            "verify": verify,
            "n_bytes": inputs.n_bytes,
            "bytes": needed,
            "over_bytes": ratio(verify, needed),
            "snapshots": self._time("snapshots", right_baseline, baseline.verify_all),
            "fla": self._linear_attention(fla, truth),
            "inexact": inexact,
            "price": None if price is None else price - 1,
        }

    def _run_first(self) -> bool:
        """Call the kernel for layer 0; whether a lone sequence's bytes are the reference's."""
        if self.size["batch"] > 1:
            self.inputs.verify(self.backend, 0)
            return True
        wanted = self.inputs.reference()
        self.inputs.verify(self.backend, 0)
        found = self.inputs.results()
        nodes = self.size["nodes"]
        pairs = {
            name: (found[name], wanted[name])
            if name in ("out", "state")
            # beyond the tree's nodes a bank holds what it held
            else (found[name][:, :nodes], wanted[name][:, :nodes])
            for name in wanted
        }
        return self._same("verify", pairs)

    def _same(self, what: str, pairs: dict[str, tuple[Any, Any]]) -> bool:
        differing = [name for name, (a, b) in pairs.items() if _bytes(a) != _bytes(b)]
        if differing:
            self.findings.problem(f"{what}, {self.name}: {', '.join(differing)} differ in bytes")
        return not differing

    def _close(self, what: str, found: Any, wanted: Any) -> bool:
        error = float((found - wanted).abs().max() / wanted.abs().max())
        if error <= CLOSE:
            return True
        self.findings.problem(f"{what}, {self.name}: off by {error:.2g} of the largest output")
        return False

    def _linear_attention(self, function: Any, truth: Any) -> float | None:
        if isinstance(function, str) or self.size["form"] != "chain":
            return None
        try:
            other = LinearAttention.of(function, self.inputs)
            right = self._close("fla", other.verify(0), truth)
            return self._time("fla", right, other.verify_all)
        except Exception as error:  # another project's code, of whatever version
            line = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            self.findings.rows("fla_errors").append({"case": self.name, "error": line})
            return None

    def _time(self, what: str, right: bool, run: Callable[[], object]) -> float | None:
        """Seconds of one layer."""
        if not right:
            return None
        seconds = self.setting.timer.seconds(f"{what}, {self.name}", run)
        return None if seconds is None else seconds / self.inputs.layers


def _bytes(array: Any) -> bytes:
    host = array if isinstance(array, np.ndarray) else array.cpu().numpy()
    return np.ascontiguousarray(host).tobytes()
