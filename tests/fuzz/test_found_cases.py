"""What happens when the fuzzer finds something: the smallest case, and a script that plays it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specla.backends.numpy import conv
from specla.fuzz.campaign import Campaign, Outcome, run
from specla.fuzz.demand import FoundError
from specla.fuzz.lifecycle.operations import Check, Flush, Open, Prefill, Round
from specla.fuzz.lifecycle.setups import KernelSetup
from specla.fuzz.lifecycle.texts import Failure
from specla.fuzz.log import Case
from specla.fuzz.script import replay, save, script

SOUND = Case(
    KernelSetup(),
    (
        Open(),
        Prefill(((0, (1, 2, 3)),), Failure(2, "wreck", ("conv_prefill",))),
        Open(Failure(0, "before", ("clear",))),
        Round(((0, (5, 6, 7), (-1, 0, 0)),), (2,), True),
        Flush(3),
        Check(0),
    ),
)


def fuzz() -> Outcome:
    return run(Campaign("kernels", "numpy", rounds=500, minutes=None), lambda *_: None)


@pytest.fixture
def windows_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accepted inputs never reach the convolution windows."""
    monkeypatch.setattr(conv, "fold_window", lambda pool, layer, plan: None)


def test_the_smallest_case_is_found(windows_forget: None) -> None:
    outcome = fuzz()
    assert isinstance(outcome.error, FoundError) and outcome.case is not None
    # a sequence, and a round or two until the lost input shows
    assert len(outcome.case.operations) <= 4
    with pytest.raises(FoundError):
        replay("numpy", outcome.case)


def test_a_crash_is_a_find(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr(conv, "fold_window", crash)
    outcome = fuzz()
    assert isinstance(outcome.error, IndexError) and outcome.case is not None


def test_a_sound_case_plays() -> None:
    replay("numpy", SOUND)


def run_script(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(path)], capture_output=True, text=True, env=dict(os.environ)
    )


def test_a_script_plays_its_case(tmp_path: Path) -> None:
    text = script(SOUND, "numpy", "specla fuzz", 'FoundError: a \\ and """ inside')
    first, second = save(text, tmp_path / "new", "case"), save(text, tmp_path / "new", "case")
    assert [first.name, second.name] == ["case-1.py", "case-2.py"]
    assert sorted(p.name for p in first.parent.iterdir()) == ["case-1.py", "case-2.py"]
    done = run_script(first)
    assert (done.returncode, done.stdout) == (0, "no difference\n"), done.stderr


def test_a_script_fails_while_the_defect_is_there(tmp_path: Path) -> None:
    text = script(SOUND, "numpy", "specla fuzz", "FoundError: state")
    broken = "from specla.backends.numpy import conv\nconv.fold_window = lambda *_: None\n\nCASE ="
    path = save(text.replace("CASE =", broken, 1), tmp_path, "case")
    done = run_script(path)
    assert done.returncode == 1 and "FoundError" in done.stderr


def test_operations_without_anything_to_act_on_do_nothing() -> None:
    replay("numpy", Case(KernelSetup(), SOUND.operations[1:2] + SOUND.operations[3:]))
