"""Start-up: quick, and nothing heavy is imported before a command needs it."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest
from cli.cli_process import command, environment

import specla
from specla.cli.app import COMMANDS
from specla.engine import DEFAULT_BUDGET

HEAVY = ("numpy", "gguf", "tokenizers", "numba", "jinja2", "rich", "torch", "importlib.metadata")


@pytest.mark.parametrize("argv", [["--help"], ["--version"], [], ["decode", "--help"]])
def test_nothing_heavy_is_imported(argv: list[str]) -> None:
    code = (
        "import sys; from specla.cli import main; code = main(sys.argv[1:]); "
        f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], env=environment(), capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")
    assert done.stdout


def test_version_is_quick() -> None:
    def seconds() -> float:
        # of the processor: another process may hold the core
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(command("--version"), env=environment(), check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(3)) < 0.5


def test_version_and_help(run) -> None:
    assert run("--version").out == f"specla {specla.__version__}\n"
    shown = run("--help")
    assert shown.code == 0 and shown.err == ""
    assert all(f"  {name}" in shown.out for name in COMMANDS)
    assert run().out == shown.out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(run, name: str) -> None:
    shown = run(name, "--help")
    assert shown.code == 0 and shown.err == ""
    assert shown.out.startswith(f"Usage: specla {name}")


def test_the_default_budget_is_the_engines(run) -> None:
    from specla.cli.decode_config import DecodeConfig

    assert DecodeConfig(text="").budget == DEFAULT_BUDGET
    assert f"[default: {DEFAULT_BUDGET}]" in run("decode", "--help").out
