"""`specla fuzz`: limits, the rows it shows, what it saves, wrong input."""

from __future__ import annotations

import errno
import os
import re
import shlex
import signal
import sys
from pathlib import Path

import pytest

from specla.backends.numpy import conv
from specla.fuzz import script

SHORT = ("fuzz", "--backend", "numpy", "--rounds", "10")


def test_a_run_without_a_difference(run, tmp_path: Path) -> None:
    result = run(*SHORT, "--save", tmp_path / "found")
    assert (result.code, result.out) == (0, "")
    assert "found: no difference" in result.err
    assert re.search(r"rounds: \d+", result.err) and re.search(r"pairs: \d+ of 225", result.err)
    assert not (tmp_path / "found").exists()


def test_quiet_is_quiet(run) -> None:
    assert run(*SHORT, "--quiet").err == ""


def test_a_difference_is_saved(run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv, "fold_window", lambda pool, layer, plan: None)
    options = ("--backend", "numpy", "--rounds", 500, "--seed", 7, "--save", tmp_path / "found")
    result = run("fuzz", *options)
    assert result.code == 1
    last = result.err.splitlines()[-1]
    path = tmp_path / "found" / "specla-fuzz-kernels-numpy-7-1.py"
    assert last.startswith("specla: error: FoundError: ") and last.endswith(f"python {path})")
    small = path.read_text(encoding="utf-8")
    assert "Found by `specla fuzz --level kernels --backend numpy --seed 7`" in small
    # as it was found, not the smallest
    assert run("fuzz", *options, "--no-shrink").code == 1
    large = path.with_name("specla-fuzz-kernels-numpy-7-2.py").read_text(encoding="utf-8")
    assert len(large) > len(small)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--level", "kernel"), "unknown level 'kernel'; known: kernels, engine, model"),
        (("--backend", "gpu"), "unknown backend 'gpu'; known: "),
        (("--minutes", "0"), "--minutes is 0; it must be above 0"),
        (("--minutes", "nan"), "--minutes is nan; it must be above 0"),
        (("--rounds", "0"), "--rounds is 0; it must be 1 or more"),
        (("--seed", "-1"), "--seed is -1; it must be 0 or more"),
        (("--minutes", "soon"), "'soon' is not a valid float"),
    ],
)
def test_wrong_input(run, options: tuple[str, ...], message: str) -> None:
    result = run("fuzz", *options)
    assert result.code == 2 and result.out == ""
    (line,) = result.err.splitlines()
    assert line.startswith("specla: error: ") and message in line


def test_a_place_to_save_that_cannot_be_written(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is refused before the run, not after hours of it."""
    (tmp_path / "file").write_text("")
    result = run(*SHORT, "--save", tmp_path / "file")
    assert result.code == 2 and "--save" in result.err.splitlines()[-1]


def test_a_difference_that_cannot_be_saved_is_told_all_the_same(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> Path:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / "found"))

    monkeypatch.setattr(conv, "fold_window", lambda pool, layer, plan: None)
    monkeypatch.setattr(script, "save", full)
    options = ("--backend", "numpy", "--rounds", 500, "--seed", 7, "--no-shrink", "--quiet")
    result = run("fuzz", *options, "--save", tmp_path)
    assert result.code == 1
    (line,) = result.err.splitlines()
    assert line.startswith("specla: error: FoundError: ") and "No space left on device" in line
    assert line.endswith("specla fuzz --level kernels --backend numpy --seed 7)")


def test_the_command_for_a_case_can_be_pasted(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conv, "fold_window", lambda pool, layer, plan: None)
    options = ("--backend", "numpy", "--rounds", 500, "--no-shrink", "--quiet")
    line = run("fuzz", *options, "--save", tmp_path / "two words").err
    command = line.partition("play them again with: ")[2].rstrip(")\n")
    (python, path) = shlex.split(command)
    assert python == "python" and Path(path).is_file()


@pytest.mark.usefixtures("heard_interrupts")
@pytest.mark.parametrize("level", ["kernels", "engine"])
def test_one_press_of_ctrl_c_ends_the_run_between_two_operations(
    run, level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It strikes inside of a kernel, where a session would take it for an injected one."""
    begin, asked = conv.conv_verify, []

    def pressed(*arguments: object) -> None:
        asked.append(1)
        if len(asked) == 3:
            signal.raise_signal(signal.SIGINT)
        begin(*arguments)

    monkeypatch.setattr(conv, "conv_verify", pressed)
    options = ("--backend", "numpy", "--rounds", 100, "--level", level)
    result = run("fuzz", *options, "--save", tmp_path)
    assert result.code == 130 and result.err.endswith("found: no difference\n")
    assert not list(tmp_path.iterdir())


def test_without_hypothesis(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    result = run(*SHORT)
    assert result.code == 2
    assert result.err == (
        "specla: error: specla fuzz needs the package hypothesis; install it with: "
        "pip install 'specla[fuzz]'\n"
    )
