"""Compiled code on disk: found again, never mixed up, and no reason to fail without it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest
from backends.unprivileged import package, run_unprivileged  # noqa: F401
from numba.core.registry import cpu_target

from specla.backends.numba import code_cache, jit
from specla.backends.numba.code_cache import CodeCache, Use

# ALONE: whether only the first folder is looked into
SCRIPT = """
import json
import numpy as np
from specla.backends.numba import code_cache
from specla.backends.numba.backend import NumbaBackend
if ALONE:  # the package's own folder may hold code by now
    first = code_cache.folders()[:1]
    code_cache.folders = lambda: first
x = np.ones((1, 4), dtype=np.float32)
out = np.empty_like(x)
NumbaBackend(threads=1).add(x, x, out)
assert (out == 2).all()
use, where = code_cache.USE, code_cache.folder()
print(json.dumps([use.loaded, use.compiled, use.damaged, str(where), code_cache.troubles()]))
"""

# one name, one place, two functions; the inner one calls itself, so that no compiler inlines it
TWINS = """
import sys
import numba
from specla.backends.numba.code_cache import USE, CodeCache

def make(factor):
    @numba.njit
    def inner(n):
        return factor if n <= 0 else (inner(n - 1) * factor + 3 * inner(n - 2)) % 7919
    def outer(n):
        return inner(n)
    dispatcher = numba.njit(outer)
    dispatcher._cache = CodeCache(outer)
    dispatcher.compile("intp(intp)")
    return dispatcher, inner

for factor in map(int, sys.argv[1:]):
    compiled, inner = make(factor)
    wanted = inner.py_func
    print(compiled(9) == wanted(9), USE.loaded)
"""


def _environment(folder: Path | str) -> dict[str, str]:
    return os.environ | {code_cache.VARIABLE: str(folder)}


def _run(folder: Path | str, alone: bool = True) -> list[Any]:
    """[loaded, compiled, damaged, folder, troubles] of a fresh process that calls one kernel: two
    functions with the one that calls it."""
    done = subprocess.run(
        [sys.executable, "-c", f"ALONE = {alone}\n{SCRIPT}"],
        env=_environment(folder),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_second_process_reads_the_cache(tmp_path: Path) -> None:
    folder = tmp_path / "not there yet"
    assert _run(folder)[:3] == [0, 2, 0]
    files = _files(folder)
    assert [file.name.partition("-")[0] for file in files] == ["add", "lead"]
    assert {file.suffix for file in files} == {".code"}
    assert _run(folder)[:3] == [2, 0, 0]
    assert _files(folder) == files


def _double() -> None:
    """Use a kernel that is nobody else's."""

    def double(x: np.ndarray) -> None:
        x[0] *= 2

    x = np.array([21])
    jit.Kernel(double, "void(int64[::1])")(x)
    assert x[0] == 42


def _cut(share: float) -> Any:
    return lambda content: content[: int(share * len(content))]


def _flip(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


@pytest.mark.parametrize(
    "damage",
    [_cut(0), _cut(0.001), _cut(0.5), _cut(0.999), _flip, lambda content: b"\x80\x04." * 5000],
    ids=["empty", "first bytes", "half", "last bytes missing", "one bit", "garbage"],
)
def test_damaged_code_is_compiled_anew(
    damage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def use() -> Use:
        monkeypatch.setattr(code_cache, "USE", Use())
        _double()
        return code_cache.USE

    monkeypatch.setattr(code_cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(code_cache, "folders", lambda: (tmp_path,))
    assert use() == Use(compiled=1)
    (file,) = _files(tmp_path)
    file.write_bytes(damage(file.read_bytes()))
    assert use() == Use(compiled=1, damaged=1)
    (line,) = code_cache.troubles()
    assert "damaged" in line
    assert use() == Use(loaded=1)
    assert _files(tmp_path) == [file]


def test_two_processes_at_once(tmp_path: Path) -> None:
    both = [
        subprocess.Popen(
            [sys.executable, "-c", f"ALONE = True\n{SCRIPT}"], env=_environment(tmp_path), stdout=-1
        )
        for _ in range(2)
    ]
    for process in both:
        out, _ = process.communicate()
        assert process.returncode == 0
        assert json.loads(out)[2] == 0
    assert len(_files(tmp_path)) == 2
    assert _run(tmp_path)[:3] == [2, 0, 0]


@pytest.mark.slow
def test_killed_in_the_middle(tmp_path: Path) -> None:
    """Whatever is there under its name is whole, and the next run goes on from it."""
    warm = (
        "from specla.backends.numba import backend, code_cache, jit\n"
        "first = code_cache.folders()[:1]\n"
        "code_cache.folders = lambda: first\n"
        "for k in jit.declared()[::-1]: k.compile()"
    )
    process = subprocess.Popen([sys.executable, "-c", warm], env=_environment(tmp_path))
    deadline = time.monotonic() + 60
    while len(list(tmp_path.rglob("*.code"))) < 2 and time.monotonic() < deadline:
        time.sleep(0.001)
    process.kill()
    process.wait()
    written = list(tmp_path.rglob("*.code"))
    assert 2 <= len(written) < 20
    for file in written:
        content = file.read_bytes()
        assert hashlib.sha256(content[32:]).digest() == content[:32]
    assert _run(tmp_path)[2] == 0


def test_code_of_two_processes_is_not_mixed_up(tmp_path: Path) -> None:
    """Numba alone gives both functions one name, and the linker then takes one for the other."""
    script = tmp_path / "twins.py"
    script.write_text(TWINS)

    def answers(*factors: str) -> list[str]:
        command = [sys.executable, str(script), *factors]
        env = _environment(tmp_path / "code")
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    assert answers("2") == ["True 0"]
    assert answers("3") == ["True 0"]
    assert answers("2", "3") == ["True 1", "True 2"]
    assert answers("3", "2") == ["True 1", "True 2"]


def test_a_kernel_that_is_the_same_has_the_same_file() -> None:
    names = {_name(2), _name(2, 1), _name(3), _name(2.0), _name((2, 3)), _name(_helper(2))}
    assert len(names) == 5
    assert _name(2, variant="void(intp)") not in names
    assert _name(_helper(2)) in names and _name(_helper(3)) not in names
    assert _name(2, signature="int32(int32)") not in names


def test_a_kernel_made_by_exec_has_a_file_of_its_own() -> None:
    def named(constant: int) -> str:
        made: dict[str, Any] = {}
        exec(f"def kernel(n):\n    return n + {constant}", made)
        codegen = cpu_target.target_context.codegen()
        return CodeCache(made["kernel"])._file_name("intp(intp)", codegen)

    assert named(1) == named(1) != named(2)


def _helper(factor: int) -> Any:
    return numba.njit(lambda n: n * factor)


def _name(constant: Any, again: int = 0, signature: str = "intp(intp)", variant: str = "") -> str:
    def kernel(n: int) -> Any:
        return constant

    return CodeCache(kernel, variant)._file_name(signature, cpu_target.target_context.codegen())


def test_the_file_depends_on_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    before = _name(2)
    codegen = cpu_target.target_context.codegen()
    triple, cpu, features = codegen.magic_tuple()
    monkeypatch.setattr(codegen, "magic_tuple", lambda: (triple, cpu, features + ",-avx2"))
    assert _name(2) != before


def test_the_folder_depends_on_every_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel contains its helpers, which may lie in any of the files."""
    specla = code_cache._PACKAGE.parent.parent
    copy = tmp_path / "specla"
    shutil.copytree(specla / "backends", copy / "backends")
    shutil.copytree(specla / "core", copy / "core")
    monkeypatch.setattr(code_cache, "_PACKAGE", copy / "backends" / "numba")
    unchanged = code_cache.sources.__wrapped__()
    assert unchanged == code_cache.sources()
    for name in ("backends/numba/primitives.py", "backends/numba/gdn.py"):
        path = copy / name
        path.write_text(path.read_text() + "\n# changed\n")
        changed = code_cache.sources.__wrapped__()
        assert changed != unchanged
        unchanged = changed
    path = copy / "core" / "elementary_source.py"
    path.write_text(path.read_text() + "\n# changed\n")
    assert code_cache.sources.__wrapped__() != unchanged


def test_old_code_does_not_pile_up(tmp_path: Path) -> None:
    versions = tmp_path / "specla-code"
    for i in range(20):
        (versions / f"{i:02}").mkdir(parents=True)
        os.utime(versions / f"{i:02}", (i, i))
    _run(tmp_path)
    left = sorted(path.name for path in versions.iterdir())
    assert len(left) == code_cache._KEPT
    assert left[:7] == [f"{i:02}" for i in range(13, 20)]


def test_a_full_disk_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(code_cache, "_write", full)
    monkeypatch.setattr(code_cache, "folder", lambda: tmp_path)
    monkeypatch.setattr(code_cache, "folders", lambda: (tmp_path,))
    monkeypatch.setattr(code_cache, "USE", code_cache.Use())

    _double()
    (line,) = code_cache.troubles()
    assert "No space left on device" in line


def test_a_cache_folder_that_is_a_file(tmp_path: Path) -> None:
    wrong = tmp_path / "file"
    wrong.write_text("")
    loaded, compiled, _, where, troubles = _run(wrong, alone=False)
    assert loaded + compiled == 2 and "specla-code" in where
    if compiled:
        assert troubles == [
            f"NUMBA_CACHE_DIR {wrong} can't be written; compiled code is kept in {where}"
        ]


@pytest.mark.parametrize("given", ["none", "a file", "unwritable", "missing"])
def test_nowhere_to_write(given: str, package: Path, tmp_path: Path) -> None:  # noqa: F811
    """Every process compiles for itself, and says so."""
    (tmp_path / "file").write_text("")
    folder = {"a file": tmp_path / "file", "unwritable": package, "missing": package / "no" / "no"}
    settings = {code_cache.VARIABLE: str(folder[given])} if given in folder else {}
    done = run_unprivileged(package, ["-c", f"ALONE = False\n{SCRIPT}"], **settings)
    assert done.returncode == 0, done.stderr
    loaded, compiled, _, where, (line,) = json.loads(done.stdout)
    assert (loaded, compiled, where) == (0, 2, "None")
    assert line.startswith("no folder for compiled code can be written") and "NUMBA_CACHE" in line


@pytest.mark.slow
def test_code_in_a_package_that_cannot_be_written_is_used(package: Path) -> None:  # noqa: F811
    """What an administrator compiled serves everybody: `specla decode` compiles nothing."""
    from specla.backends.numba.backend import NumbaBackend

    NumbaBackend().prepare(["Q8_0", "F32"])
    numba_folder = package / "specla" / "backends" / "numba"
    numba_folder.chmod(0o755)
    for ours in filter(Path.exists, code_cache.folders()):
        theirs = numba_folder / "__pycache__" / "specla-code" / ours.name
        shutil.copytree(ours, theirs, dirs_exist_ok=True)
    for path in [numba_folder, *(numba_folder / "__pycache__").rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    check = "from specla.backends.numba import code_cache; print(code_cache.USE, file=sys.stderr)"
    script = f"import sys; from specla.cli import main; main(['decode', '-p', 'Once']); {check}"
    done = run_unprivileged(package, ["-c", script])
    assert done.returncode == 0, done.stderr
    assert done.stdout and "note:" not in done.stderr
    assert "compiled=0" in done.stderr.splitlines()[-1]
