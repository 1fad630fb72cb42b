"""Soaks pass where decoding is right, and fail, by name and loudly, where it was made wrong."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soak
from soak_plain import state_digests
from soak_proposals import REGIMES
from soak_result import Result, failures_of, resident_bytes
from support.chosen import CPU_BACKENDS

from specla.core.acceptance import Acceptance
from specla.core.lifecycle import Ledger
from specla.models.store import SequenceStore
from specla.testing.alarm import DriftAlarm


def run(*options: object) -> int:
    # across the end of a page, and short enough for several sequences
    return soak.main(["--context", "72", "--max-nodes", "8", *map(str, options)])


@pytest.fixture
def figures(tmp_path: Path) -> Any:
    """The file for --json; calling it reads what a soak wrote."""
    path = tmp_path / "soak.json"

    class Figures:
        def __str__(self) -> str:
            return str(path)

        def read(self) -> list[dict[str, Any]]:
            return json.loads(path.read_text())["soaks"]

    return Figures()


def test_a_clean_soak_passes_and_tells_what_it_did(figures: Any) -> None:
    rounds = 30
    assert run("--backend", "numba", "--rounds", rounds, "--json", figures) == 0
    reject, random, full = figures.read()
    assert [s["regime"] for s in (reject, random, full)] == list(REGIMES)
    for figure in (reject, random, full):
        assert figure["rounds"] == figure["states_compared"] == rounds
        assert figure["logits_compared"] == figure["tokens"]
        assert figure["differing_rounds"] == 0 and figure["first_difference"] is None
        assert figure["sequences"] >= 1 and 0 < figure["chains"] < rounds
    assert reject["mean_accept_length"] == 1 and reject["gathers"] == 0
    assert 1 < random["mean_accept_length"] < full["mean_accept_length"]
    assert random["gathers"] and full["gathers"]


def test_backends_end_with_the_same_digest(figures: Any) -> None:
    backends = [option for name in CPU_BACKENDS for option in ("--backend", name)]
    assert run(*backends, "--regime", "random", "--rounds", 8, "--json", figures) == 0
    soaks = figures.read()
    assert [s["backend"] for s in soaks] == CPU_BACKENDS
    assert len({s["digest"] for s in soaks}) == 1


def _gather_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SequenceStore, "_copy_paths", lambda store, plan: None)


def _pending_lost(monkeypatch: pytest.MonkeyPatch, after: int = 0) -> None:
    """after: commits that are right."""
    right, commits = Ledger.end_commit, itertools.count(1)

    def wrong(ledger: Ledger, move: Any) -> None:
        right(ledger, move)
        if next(commits) > after:
            ledger._fold_all()

    monkeypatch.setattr(Ledger, "end_commit", wrong)


def _folded_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    right = SequenceStore.commit_all

    def wrong(store: SequenceStore, items: list[Any]) -> None:
        right(store, items)
        for sequence, _ in items:
            before = sequence.ledger.save()
            store.flush(sequence)
            sequence.ledger.begin_load()
            sequence.ledger.end_load(before)

    monkeypatch.setattr(SequenceStore, "commit_all", wrong)


@pytest.mark.parametrize("backend", CPU_BACKENDS)
@pytest.mark.parametrize(
    ("plant", "names"),
    [(_gather_lost, "key"), (_pending_lost, "window"), (_folded_twice, "state")],
)
def test_a_planted_fault_fails_at_its_first_round(
    plant: Any,
    names: str,
    backend: str,
    figures: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plant(monkeypatch)
    assert run("--backend", backend, "--regime", "random", "--rounds", 60, "--json", figures) == 1
    (figure,) = figures.read()
    number, where, *differing = figure["first_difference"]
    assert figure["rounds"] == number < 60 and names in differing
    out = capsys.readouterr().out
    assert f"FAILED: ALARM: {backend}, random: round {number}, {where}: differs" in out


def test_a_fault_that_raises_acceptance_is_called_corrupt_aloud(
    figures: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # without its accepted tokens the model repeats itself, which n-grams predict
    _pending_lost(monkeypatch, after=100)
    options = ("--backend", "numba", "--adapter", "ngram", "--rounds", 500, "--keep-going", 80)
    assert run(*options, "--context", 160, "--json", figures) == 1
    (figure,) = figures.read()
    assert figure["rounds"] == 181 and figure["first_difference"][0] == 101
    assert figure["accept_length_after"] > 1.2 * figure["accept_length_before"]
    out = capsys.readouterr().out
    assert "FAILED: ALARM: numba, ngram: STATE IS CORRUPT AND ACCEPTANCE ROSE" in out
    assert "in 100 rounds before" in out and "in 80 rounds after" in out


def test_a_real_adapter_may_be_soaked(figures: Any) -> None:
    options = ("--backend", "numba", "--adapter", "suffix", "--regime", "full")
    assert run(*options, "--rounds", 20, "--json", figures) == 0
    assert [(s["regime"], s["states_compared"]) for s in figures.read()] == [
        ("full", 20),
        ("suffix", 20),
    ]


def test_candidates_that_are_not_accepted_fail(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # everything is right but for speculation itself, which brings nothing
    monkeypatch.setattr(
        "specla.verification.walk", lambda tree, choose: Acceptance((0,), choose(0, ()))
    )
    assert run("--backend", "numba", "--regime", "full", "--rounds", 20) == 1
    assert "differs from plain decoding: accepted path (0,) instead of (0, 1" in (
        capsys.readouterr().out
    )


def test_a_reference_that_differs_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("soak_plain.PlainText.differing", lambda *_: ["logits at position 9"])
    assert run("--backend", "numba", "--regime", "full", "--rounds", 5) == 1
    assert "FAILED: numba, full: plain decoding differs from the reference backend" in (
        capsys.readouterr().out
    )


def _result(rounds: int, sizes: list[int]) -> Result:
    memory = list(enumerate(sizes))
    return Result("b", "full", DriftAlarm("b, full"), rounds=rounds, memory=memory)


def test_memory_that_grows_fails_a_long_soak() -> None:
    megabyte = 2**20
    flat = _result(10_000, [1000 * megabyte, 1009 * megabyte, 90 * megabyte])
    assert not failures_of(flat)
    grown = _result(10_000, [100 * megabyte, 102 * megabyte, 90 * megabyte])
    (line,) = failures_of(grown)
    assert line == "b, full: memory grew by 2.00 %: MiB 100.0, 102.0, 90.0"
    assert not failures_of(_result(100, [100 * megabyte, 150 * megabyte]))


def test_resident_memory_is_seen_to_grow() -> None:
    before = resident_bytes()
    if before is None:
        pytest.skip("needs Linux's /proc")
    block = bytearray(b"x" * 2**25)
    after = resident_bytes()
    assert after is not None and after - before > len(block) // 2


def test_a_bad_option_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--backend", "numpi") == 2
    assert "unknown backend 'numpi'" in capsys.readouterr().err
    assert run("--rounds", 0) == 2
    assert capsys.readouterr().err == "soak: --rounds is 0; it must be 1 or more\n"


def test_figures_that_cannot_be_written_are_refused_before_the_soak(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "missing" / "soak.json"
    assert run("--backend", "numpy", "--json", path) == 2
    assert capsys.readouterr() == ("", f"soak: --json {path}: No such file or directory\n")


def test_a_refusal_in_the_middle_is_a_failure_and_no_bad_option(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        Ledger, "end_commit", lambda ledger, move: setattr(ledger, "_writing", "nothing")
    )
    assert run("--backend", "numpy", "--regime", "full", "--rounds", 5) == 1
    assert "FAILED: numpy, full: LifecycleError: " in capsys.readouterr().out


def test_not_a_number_equals_nothing_not_even_itself() -> None:
    """Or a fault of both decodings would agree with itself."""

    class Target:
        options = SimpleNamespace(features=())
        state = np.float32([1, np.nan])

        def state_arrays(self, _: object) -> dict[str, Any]:
            return {"state": self.state, "window": np.zeros(2, np.float32)}

    target: Any = Target()
    first, second = state_digests(target, target), state_digests(target, target)
    assert first["window"] == second["window"] and first["state"] != second["state"]
