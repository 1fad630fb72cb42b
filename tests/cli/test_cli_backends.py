"""Which backend computes, on how many threads, with which code: chosen, shown, refused."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.cli_expected import PROMPT, PROMPT_IDS, plainly, report, token_text
from cli.cli_process import command, environment

import specla.backends as module
from specla.backends import backends
from specla.backends.numba import code_cache
from specla.backends.options import usable_cpus
from specla.cli.preparing import Prepared

DECODE = ("-p", PROMPT, "-n", 3)


@pytest.mark.parametrize("backend", ["auto", "numba", "numpy"])
def test_the_text_is_the_same_on_each(run, model: Path, backend: str) -> None:
    ids = plainly(model, PROMPT_IDS, 8)
    result = run("decode", model, "-p", PROMPT, "-n", 8, "--backend", backend, "--check")
    assert (result.code, result.out) == (0, token_text(ids))
    (line,) = [line for line in result.err.splitlines() if line.startswith("backend: ")]
    assert line.startswith("backend: numpy, 1 thread," if backend == "numpy" else "backend: numba ")


def _threads(run, model: Path, *argv: object) -> int:
    return int(report(run, model, *DECODE, *argv)["settings"]["threads"])


def test_threads_from_the_option_the_environment_the_default(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPECLA_THREADS", raising=False)
    assert _threads(run, model) == 1, "a tiny model gains nothing from more"
    assert _threads(run, model, "--threads", 2) == 2
    monkeypatch.setenv("SPECLA_THREADS", "3")
    assert _threads(run, model) == 3
    assert _threads(run, model, "--threads", 2) == 2
    assert _threads(run, model, "--backend", "numpy") == 1
    monkeypatch.delenv("SPECLA_THREADS")
    monkeypatch.setattr("specla.backends.options.SMALL_MODEL", 1)
    assert _threads(run, model) == usable_cpus()


def test_a_bad_number_in_the_environment(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLA_THREADS", "many")
    result = run("decode", model, *DECODE)
    assert (result.code, result.out) == (2, "")
    assert "SPECLA_THREADS is 'many'; it must be a whole number 1..256" in result.err


def _without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_numba_problem", lambda: "importing Numba failed: no wheel")


def test_auto_without_numba_says_so(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_numba(monkeypatch)
    result = run("decode", model, *DECODE)
    assert result.code == 0 and result.out == token_text(plainly(model, PROMPT_IDS, 3))
    first, *rest = result.err.splitlines()
    assert first == (
        "note: backend numpy, which is slow, is used: importing Numba failed: no wheel"
    )
    assert "no wheel" not in "\n".join(rest)
    assert report(run, model, *DECODE)["settings"]["backend"] == "numpy"
    found = {entry["name"]: entry for entry in json.loads(run("backends", "--json").out)}
    assert found["numpy"]["auto"] and not found["numba"]["auto"]
    assert "no wheel" in found["numba"]["problem"]


def test_numba_without_numba_is_refused(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_numba(monkeypatch)
    result = run("decode", model, *DECODE, "--backend", "numba")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert "backend numba can't be used: importing Numba failed: no wheel" in result.err


def test_numba_that_is_switched_off(model: Path) -> None:
    done = subprocess.run(
        command("decode", model, *DECODE),
        env=environment(NUMBA_DISABLE_JIT="1"),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert done.stderr.startswith("note: backend numpy, which is slow, is used: NUMBA_DISABLE_JIT")


def test_backends(run, monkeypatch: pytest.MonkeyPatch) -> None:
    class NoGpu:
        def __init__(self) -> None:
            raise RuntimeError("no GPU here")

    monkeypatch.delenv("SPECLA_THREADS", raising=False)
    monkeypatch.setitem(backends._factories, "gpu", lambda: NoGpu)
    found = {entry["name"]: entry for entry in json.loads(run("backends", "--json").out)}
    assert found["numpy"] == {"name": "numpy", "origin": "specla", "auto": False, "problem": None}
    assert found["gpu"]["problem"] == "RuntimeError: no GPU here"
    numba = found["numba"]
    assert numba["auto"] and numba["problem"] is None
    assert numba["level"] in ("portable", "avx2", "vnni256", "vnni")
    assert numba["threads"] == [1, usable_cpus()]
    assert numba["code"] == str(code_cache.folder())
    lines = {line.split()[0]: line for line in run("backends").out.splitlines()}
    assert f"usable, the default, CPU level {numba['level']}, 1 thread" in lines["numba"]
    assert lines["numba"].endswith(f"code in {numba['code']}")
    assert lines["numpy"].endswith("usable") and lines["gpu"].endswith("no GPU here")


def test_the_cpu_level_can_be_limited(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLA_CPU_LEVEL", "portable")
    found = {entry["name"]: entry for entry in json.loads(run("backends", "--json").out)}
    assert found["numba"]["level"] == "portable"
    monkeypatch.setenv("SPECLA_CPU_LEVEL", "mmx")
    result = run("decode", model, *DECODE)
    assert result.code == 2 and "SPECLA_CPU_LEVEL 'mmx' is unknown" in result.err
    found = {entry["name"]: entry for entry in json.loads(run("backends", "--json").out)}
    assert "mmx" in found["numba"]["problem"]


def _rows(text: str) -> dict[str, str]:
    return dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)


def test_warmup_of_what_is_there(run, model: Path) -> None:
    result = run("warmup", model, model)
    assert (result.code, result.out) == (0, "")
    rows = _rows(result.err)
    assert re.fullmatch(r"\d+, all there already", rows["kernels"])
    assert rows["code"] == str(code_cache.folder())
    assert re.fullmatch(r"\d+\.\d s", rows["time"])
    assert rows["backend"].startswith("numba, ")
    assert result.err.splitlines()[0] == "preparing the numba backend"
    quiet = run("warmup", model, "--quiet", "--threads", 2)
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


class Slow:
    """Stands for a backend: two kernels, the first of which takes its time."""

    name, compiles, level = "slow", True, None

    def prepare(self, kinds: Any, report: Any, caches: Any) -> int:
        for done, kernel in enumerate(["_first", "second", "third"]):
            report(done, 3, kernel)
        return 3


def test_progress_is_counted_and_named(run, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = iter(range(0, 1000, 5))
    monkeypatch.setattr("specla.cli.progress.monotonic", lambda: next(moments))
    monkeypatch.setitem(backends._factories, "slow", lambda: Slow)
    result = run("warmup", "--backend", "slow")
    assert result.err.splitlines() == [
        "preparing the slow backend",
        "preparing the slow backend: 1/3 kernels, second, 5 s",
        "preparing the slow backend: 2/3 kernels, third, 10 s",
        "backend: slow",
        "kernels: 3, 3 compiled now",
        "time: 0.0 s",
    ]


def test_warmup_of_a_backend_that_compiles_nothing(run) -> None:
    result = run("warmup", "--backend", "numpy")
    assert (result.code, result.err) == (0, "backend: numpy, which compiles nothing\n")


def test_warmup_where_code_can_only_be_read(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = code_cache.place()
    monkeypatch.setattr(code_cache, "folder", lambda: None)
    result = run("warmup", model)
    assert result.code == 0 and _rows(result.err)["code"] == str(here)
    monkeypatch.setattr("specla.cli.preparing.prepare_backend", lambda *_: Prepared(3, 1, 0.0))
    result = run("warmup", model)
    assert result.code == 2 and "can be written" in result.err


def test_warmup_with_nowhere_to_keep_it(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "folder", lambda: None)
    monkeypatch.setattr(code_cache, "folders", lambda: (tmp_path / "none",))
    result = run("warmup")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert "none of the folders for compiled code can be written" in result.err
    assert "NUMBA_CACHE_DIR" in result.err and str(tmp_path / "none") in result.err
    assert "code is kept nowhere" in run("backends").out


def test_decode_says_that_it_compiled_for_nothing(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_cache, "folder", lambda: None)
    monkeypatch.setattr(code_cache, "USE", code_cache.Use(compiled=1))
    result = run("decode", model, *DECODE)
    assert result.code == 0
    (note,) = [line for line in result.err.splitlines() if line.startswith("note: ")]
    assert note.startswith("note: no folder for compiled code can be written")
    assert run("decode", model, *DECODE, "--quiet").err == ""


def test_a_person_sees_a_bar_with_the_kernels_name(model: Path) -> None:
    leader, follower = os.openpty()
    process = subprocess.Popen(
        command("warmup", model), stdin=follower, stdout=follower, stderr=follower,
        env=environment(TERM="xterm", COLUMNS="120", NO_COLOR="1"),
    )  # fmt: skip
    os.close(follower)
    shown = b""
    while True:
        try:
            chunk = os.read(leader, 65536)
        except OSError:  # how a terminal says that its other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(leader)
    assert process.wait(timeout=60) == 0
    text = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", shown.decode("utf-8", "replace"))
    assert re.search(r"preparing the numba backend .*\d+/\d+ *kernels *\d:\d\d:\d\d *[a-z]", text)
    assert "all there already" in text
