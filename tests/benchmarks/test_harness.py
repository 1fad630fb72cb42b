"""Order of the runs, ratios, tables and the machine's limits."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import machine_limits
import pytest
from harness import Neighbours, Table, interleaved, median_ratio


def test_runs_take_turns() -> None:
    calls: list[str] = []

    def run(name: str) -> float:
        calls.append(name)
        return float(len(calls))

    results = interleaved({"a": lambda: run("a"), "b": lambda: run("b")}, 3)
    assert calls == ["a", "b", "a", "b", "a", "b"]
    assert results == {"a": [1, 3, 5], "b": [2, 4, 6]}


def test_a_ratio_is_that_of_neighbours() -> None:
    # the machine was ten times slower in the last run, which must not show
    assert median_ratio([2, 2, 30], [1, 1, 10]) == 2


def test_a_table_rounds_to_three_digits(capsys: pytest.CaptureFixture[str]) -> None:
    Table("a", "b").row("x", 1234.5, 12.345, 0.012345, 0.0, 7, float("nan"))
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["| a | b |", "|---|---|", "| x | 1234 | 12.3 | 0.0123 | 0 | 7 | nan |"]


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs Linux's /proc")
def test_own_processes_are_no_neighbours() -> None:
    busy = "import time\nend = time.time() + 1\nwhile time.time() < end: pass"
    process = subprocess.Popen([sys.executable, "-c", busy])
    ours, theirs = Neighbours([process.pid]), Neighbours()
    time.sleep(0.6)
    # both see the same others, and only one of them the process
    assert theirs.share() - ours.share() > 0.1 / (os.cpu_count() or 1)
    process.wait()


@pytest.mark.parametrize("name", machine_limits.available())
def test_a_peak_is_that_of_the_instruction_alone(name: str) -> None:
    code = machine_limits.assembly(name)
    loop = code[code.index("\n.LBB0_1:") : code.index("\n", code.index("\tjb\t"))]
    count = {"vmulps and vaddps": 2}.get(name, 1) * machine_limits.CHAINS
    mnemonics = [word.split("\t")[1] for word in loop.splitlines() if word.startswith("\tv")]
    assert len(mnemonics) == count
    assert {mnemonic.rstrip("sp") for mnemonic in mnemonics} == {
        part.rstrip("sp") for part in name.split(",")[0].split(" and ")
    }


def test_peaks_are_measured_for_what_is_there() -> None:
    peaks = machine_limits.instruction_peaks(1, turns=1000)
    assert list(peaks) == machine_limits.available()
    assert all(peak > 0 for peak in peaks.values())
