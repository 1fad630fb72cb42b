"""`specla doctor`: everything on one page, whatever is missing or broken."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.cli_process import command, environment
from cli.fake_gpu import FACTS, WORDS

from specla.backends.triton.code_folder import code_folder
from specla.cli import cache_folders, packages
from specla.cli.cache_folders import described

TEXT, MAYBE = (str,), (str, type(None))
COUNT, AMOUNT = (int,), (int, type(None))
SCHEMA: dict[str, Any] = {
    "specla": {"version": TEXT, "folder": TEXT},
    "python": {"version": TEXT, "implementation": TEXT, "executable": TEXT},
    "system": {"os": TEXT, "release": TEXT, "machine": TEXT},
    "cpu": {
        "model": TEXT, "present": AMOUNT, "usable": COUNT, "quota": AMOUNT, "levels": [TEXT],
        "level": TEXT, "features": [TEXT],
    },
    "memory": {"total": AMOUNT, "available": AMOUNT, "limit": AMOUNT},
    "packages": {name: {"version": MAYBE, "problem": MAYBE} for name in packages.TRIED},
    "gpus": {"problem": MAYBE, "devices": [(dict,)]},
    "caches": [
        {"of": TEXT, "folder": TEXT, "exists": (bool,), "writable": (bool,), "files": COUNT,
         "bytes": COUNT},
    ],
}  # fmt: skip


def check(value: Any, schema: Any) -> None:
    if isinstance(schema, dict):
        assert set(value) == set(schema)
        for key, inner in schema.items():
            check(value[key], inner)
    elif isinstance(schema, list):
        assert isinstance(value, list)
        for item in value:
            check(item, schema[0])
    else:
        assert isinstance(value, schema)


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither torch nor Triton is looked for: importing them takes seconds."""
    real = packages._is_there
    monkeypatch.setattr(
        packages, "_is_there", lambda name: name not in ("torch", "triton") and real(name)
    )
    monkeypatch.setattr("specla.backends.triton.packages.find_spec", lambda name: None)
    versions = packages.version

    def version(name: str) -> str:
        if name in ("torch", "triton"):
            raise packages.PackageNotFoundError(name)
        return versions(name)

    monkeypatch.setattr(packages, "version", version)


def test_everything_as_json(run, untried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECLA_THREADS", "2")
    monkeypatch.setenv("TRITON_INTERPRET", "0")
    shown = run("doctor", "--json")
    assert (shown.code, shown.err) == (0, "")
    found = json.loads(shown.out)
    variables = found.pop("variables")
    assert (variables["SPECLA_THREADS"], variables["TRITON_INTERPRET"]) == ("2", "0")
    assert "PATH" not in variables
    listed = found.pop("backends")
    assert listed == json.loads(run("backends", "--json").out)
    check(found, SCHEMA)
    assert found["packages"]["torch"] == {"version": None, "problem": None}
    assert found["packages"]["numpy"]["problem"] is None
    assert found["gpus"]["problem"] == "it takes torch to look for one, which is not installed"
    assert [cache["of"] for cache in found["caches"]][-1] == "triton"
    assert found["cpu"]["level"] in found["cpu"]["levels"]


def test_everything_as_text(run, untried: None) -> None:
    shown = run("doctor")
    assert (shown.code, shown.err) == (0, "")
    lines = [line.split("  ", 1) for line in shown.out.splitlines()]
    rows = {label: text.strip() for label, text in lines}
    assert rows["triton"] == "not installed"
    assert "the default" in rows["backend numba"] and rows["backend numpy"] == "usable"
    assert "the package torch isn't installed" in rows["backend triton"]
    assert rows["GPU"].startswith("none found: ")
    assert "writable" in rows["code of triton"]
    for label in ("specla", "Python", "system", "CPU", "CPU levels", "CPU features", "memory"):
        assert rows[label] and "unknown" not in rows[label]


BROKEN = {
    "numba": "raise ImportError('Numba needs NumPy 2.5 or less')",
    "torch": "raise OSError('libcudart.so.13:\\n cannot open shared object file')",
    "triton": "import os, signal; os.kill(os.getpid(), signal.SIGILL)",
    "gguf": "import sys; print('no', file=sys.stderr); sys.exit(3)",
}


def _broken(folder: Path, code: dict[str, str], *argv: str) -> subprocess.CompletedProcess[str]:
    for name, text in code.items():
        (folder / f"{name}.py").write_text(text)
    path = os.pathsep.join([str(folder), environment()["PYTHONPATH"]])
    return subprocess.run(
        command("doctor", *argv), env=environment(PYTHONPATH=path), capture_output=True, text=True
    )


def test_broken_packages(tmp_path: Path) -> None:
    done = _broken(tmp_path, BROKEN, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    problems = {name: package["problem"] for name, package in found["packages"].items()}
    assert problems["numba"] == ("importing it fails: ImportError: Numba needs NumPy 2.5 or less")
    assert problems["torch"].endswith("cannot open shared object file")
    assert problems["triton"] == "importing it ends the process: SIGILL"
    assert problems["gguf"] == "importing it fails: no"
    assert problems["numpy"] is None
    states = {entry["name"]: entry for entry in found["backends"]}
    assert states["numpy"]["problem"] is None and states["numpy"]["auto"]
    assert "Numba needs NumPy 2.5 or less" in states["numba"]["problem"]
    # the one that would take this process with it was not tried
    assert "package torch" in states["triton"]["problem"]
    assert "broken: " in found["gpus"]["problem"]
    assert "Numba needs" in found["cpu"]["problem"] and found["cpu"]["model"]
    assert [cache["of"] for cache in found["caches"]] == ["triton"]


def test_even_without_numpy(tmp_path: Path) -> None:
    broken = {**BROKEN, "numpy": "raise ImportError('numpy was built for another Python')"}
    done = _broken(tmp_path, broken)
    assert (done.returncode, done.stderr) == (0, "")
    rows = dict(line.split("  ", 1) for line in done.stdout.splitlines())
    assert "numpy was built for another Python" in rows["numpy"]
    assert "numpy was built for another Python" in rows["backends"]
    assert "unknown" not in rows["system"] + rows["memory"]


def test_an_import_that_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "specla_slow.py").write_text("import time; time.sleep(600)")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packages, "TRIED", ("specla_slow",))
    monkeypatch.setattr(packages, "PATIENCE", 0.2)
    found = packages.packages()
    assert found == {
        "specla_slow": {"version": "unknown", "problem": "importing it takes more than 0 s"}
    }


def test_a_package_without_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Triton that comes with a ROCm build of torch is recorded by another name
    (tmp_path / "specla_odd.py").write_text("print('hello'); __version__ = '3.7.0'")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(packages, "TRIED", ("specla_odd",))
    assert packages.packages() == {"specla_odd": {"version": "3.7.0", "problem": None}}


def test_where_no_process_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(packages.subprocess, "Popen", refuse)
    assert "no more processes" in packages.packages()["numpy"]["problem"]


def test_the_folder_of_triton(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    monkeypatch.delenv("TRITON_HOME", raising=False)
    monkeypatch.setenv("HOME", "/home/somebody")
    assert code_folder() == Path("/home/somebody/.triton/cache")
    monkeypatch.setenv("TRITON_HOME", "/fast")
    assert code_folder() == Path("/fast/.triton/cache")
    monkeypatch.setenv("TRITON_HOME", "")
    assert code_folder() == Path(".triton/cache"), "as Triton takes it"
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert code_folder() == tmp_path


def test_what_a_folder_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "a").write_bytes(bytes(10))
    (tmp_path / "b").write_bytes(bytes(5))
    assert described("x", tmp_path) == {
        "of": "x", "folder": str(tmp_path), "exists": True, "writable": True, "files": 2,
        "bytes": 15,
    }  # fmt: skip
    missing = described("x", tmp_path / "b" / "c")
    assert (missing["exists"], missing["writable"], missing["files"]) == (False, False, 0)
    assert described("x", tmp_path / "new" / "er")["writable"]
    monkeypatch.setattr(cache_folders.os, "access", lambda *_: False)
    assert not described("x", tmp_path)["writable"]


def test_gpus_are_told(run, untried: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "specla.cli.environment._gpus", lambda _: {"problem": None, "devices": [FACTS]}
    )
    rows = dict(line.split("  ", 1) for line in run("doctor").out.splitlines())
    assert rows["GPU"].strip() == WORDS
