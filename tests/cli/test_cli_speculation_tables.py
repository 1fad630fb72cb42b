"""The tables of docs/command-line.md, row by row: what they say is what the command does."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import pytest
from cli.cli_draft import write_draft
from cli.cli_expected import PROMPT
from cli.cli_model import write_model
from cli.cli_process import REPOSITORY
from models.tokenizer.tokenizer_helpers import tiny_metadata

from specla.adapters.base import Adapter, adapters
from specla.cli.decode import command
from specla.cli.speculation import DRAFTED_BY, NO_DRAFT, OWN_LAYER, DraftKind
from specla.cli.speculation_flags import (
    CONDITIONAL,
    FUSED,
    SPECLA,
    TOP_K,
    Environment,
    SpeculationFlags,
)
from specla.core.proposal import Proposal, SequenceView

OPT = "--adapter-opt"
PAGE = (REPOSITORY / "docs" / "command-line.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """Cells of the rows of the table under a heading, without its first two lines."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def code(cell: str) -> list[str]:
    return re.findall(r"`([^`]*)`", cell)


@dataclass(frozen=True)
class Options:
    """All options that a flag can stand for."""

    draft: str = ""
    tau: float = 6.0
    top_k: int = 4
    window: int | None = None
    block: int | None = None
    conditional: bool = False


class Everything(Adapter):
    Options = Options

    def propose(self, views: list[SequenceView]) -> list[Proposal]:  # type: ignore[override]
        return [Proposal() for _ in views]


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (SPECLA, TOP_K, CONDITIONAL, FUSED):
        monkeypatch.delenv(name, raising=False)
    point = type("Point", (), {"name": "everything", "value": "x:Everything", "dist": None})()
    point.load = lambda: Everything
    monkeypatch.setattr(adapters, "_entry_points", lambda: [point])


# -- which adapter -------------------------------------------------------------------------------


def test_the_choices_are_those_of_the_code() -> None:
    told = [code(row[1])[0] for row in table("Which adapter") if code(row[1])]
    assert told == [
        DRAFTED_BY[DraftKind.DSPARK],
        DRAFTED_BY[DraftKind.DFLASH],
        DRAFTED_BY[DraftKind.MODEL],
        DRAFTED_BY[DraftKind.MTP],
        OWN_LAYER,
        NO_DRAFT,
    ]


# -- options -------------------------------------------------------------------------------------

OPTIONS = {tuple(code(row[0])) or (row[0],): row for row in table("Options")}


@dataclass(frozen=True)
class Case:
    """One row. argv: the option in use.  shown: (path in the settings, value) then.  least: (path,
    value) without it.  bad: values out of the range.  variable: (name, value) that does the same,
    with ``beside`` as other arguments; bad_variable: a value that is refused."""

    argv: str
    shown: tuple[str, Any]
    otherwise: Any
    bad: tuple[str, ...] = ()
    variable: tuple[str, str] | None = None
    beside: str = ""
    bad_variable: str | None = None


CASES: dict[tuple[str, ...], Case] = {
    ("--draft FILE",): Case("--draft d.gguf", ("everything.draft", "d.gguf"), ""),
    ("--adapter NAME",): Case("--adapter none", ("adapter", "none"), "everything"),
    ("--adapter-opt KEY=VALUE",): Case("--adapter-opt tau=2.5", ("everything.tau", 2.5), 6.0),
    ("--specla", "--no-specla"): Case(
        "--specla", ("specla", True), False, variable=(SPECLA, "yes")
    ),
    ("--budget N",): Case("--budget 7", ("budget", 7), 22, bad=("-1", "4096")),
    ("--ddtree-budget N",): Case("--ddtree-budget 7", ("budget", 7), 22, bad=("0", "4096")),
    ("--ddtree-tau T",): Case(
        "--ddtree-tau 2.5", ("everything.tau", 2.5), 6.0, bad=("-1", "nan", "inf")
    ),
    ("--specla-top-k K",): Case(
        "--specla --specla-top-k 3", ("everything.top_k", 3), 4, bad=("0", "4097"),
        variable=(TOP_K, "3"), beside="--specla", bad_variable="0",
    ),
    ("--draft-swa N",): Case("--draft-swa 16", ("everything.window", 16), None, bad=("0",)),
    ("--draft-block-size N",): Case(
        "--draft-block-size 6", ("everything.block", 6), None, bad=("1", "33")
    ),
    ("--no-fast-rollback",): Case("--no-fast-rollback", ("verification", "replay"), "tree"),
    ("--seq-verify",): Case("--seq-verify", ("verification", "sequential"), "tree"),
    ("--adapter-opt conditional=1",): Case(
        "--adapter-opt conditional=1", ("everything.conditional", True), False,
        variable=(CONDITIONAL, "1"), beside="--specla", bad_variable="2",
    ),
    ("(environment only)",): Case(
        "", ("fused_commit", False), True, variable=(FUSED, "0"), bad_variable="no"
    ),
}  # fmt: skip


def test_every_row_has_its_case() -> None:
    assert list(OPTIONS) == list(CASES)


def test_every_flag_has_its_row() -> None:
    said = {word.split()[0] for row in OPTIONS for word in row if word.startswith("--")}
    taken = {"given", "environment"}
    flags = {field.name for field in fields(SpeculationFlags)} - taken
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    assert said <= options
    assert len(flags) + 1 == len(said)  # --no-specla is no field of its own
    assert {name for row in OPTIONS.values() for name in code(row[4]) if "DFLASH" in name} == {
        SPECLA, TOP_K, CONDITIONAL, FUSED
    }  # fmt: skip
    assert len(fields(Environment)) == 4


def settings(run: Any, model: Path, *argv: str) -> dict[str, Any]:
    chosen = () if "--adapter" in argv else ("--adapter", "everything")
    done = run("decode", model, "-p", PROMPT, "-n", "3", "--check", "--json", *chosen, *argv)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["check"]["identical"]
    return found["settings"]


def at(found: dict[str, Any], path: str) -> Any:
    owner, dot, name = path.rpartition(".")
    return found["adapter_options"][owner][name] if dot else found[name]


@pytest.mark.parametrize("row", CASES, ids=lambda row: row[0].split()[0])
def test_an_option(
    run: Any, model: Path, row: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[row]
    path, wanted = case.shown
    beside = case.beside.split()
    assert at(settings(run, model, *beside), path) == case.otherwise
    default = code(OPTIONS[row][2]) or re.findall(r"^[\d.]+$", OPTIONS[row][2])
    if default and path != "adapter":
        assert float(default[0]) == float(case.otherwise)
    if case.argv:
        assert at(settings(run, model, *case.argv.split()), path) == wanted
    for value in case.bad:
        flag = case.argv.split()[-2]
        bad = run("decode", model, "-p", PROMPT, *beside, flag, value)
        assert bad.code == 2 and bad.err.startswith(f"specla: error: {flag} is {value}")
        assert len(bad.err.splitlines()) == 1
    if case.variable is not None:
        name, value = case.variable
        assert name in OPTIONS[row][4]
        monkeypatch.setenv(name, value)
        assert at(settings(run, model, *beside), path) == wanted
        monkeypatch.setenv(name, "")
        assert at(settings(run, model, *beside), path) == case.otherwise
        if case.bad_variable is not None:
            monkeypatch.setenv(name, case.bad_variable)
            bad = run("decode", model, "-p", PROMPT, *beside)
            assert bad.code == 2 and f"{name} is {case.bad_variable!r}" in bad.err
            assert len(bad.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("variables", "argv", "path", "wanted"),
    [
        ({TOP_K: "3"}, "--specla --specla-top-k 5", "everything.top_k", 5),
        ({TOP_K: "3"}, f"--specla {OPT} top_k=5", "everything.top_k", 5),
        ({TOP_K: "3"}, f"--specla {OPT} everything.top_k=5", "everything.top_k", 5),
        ({TOP_K: "3"}, "", "everything.top_k", 4),
        ({CONDITIONAL: "1"}, f"--specla {OPT} conditional=0", "everything.conditional", False),
        ({CONDITIONAL: "1"}, "", "everything.conditional", False),
        ({SPECLA: "1"}, "--no-specla", "specla", False),
        ({SPECLA: "1"}, "--no-fast-rollback", "specla", False),
        ({SPECLA: "1"}, "--no-fast-rollback", "verification", "replay"),
        ({SPECLA: "1"}, "--seq-verify", "verification", "sequential"),
        ({SPECLA: "0"}, "--specla", "specla", True),
        ({SPECLA: "0"}, "", "specla", False),
        ({SPECLA: "1", TOP_K: "3"}, "", "everything.top_k", 3),
    ],
)  # fmt: skip
def test_a_flag_goes_before_the_environment(
    run: Any,
    model: Path,
    variables: dict[str, str],
    argv: str,
    path: str,
    wanted: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert at(settings(run, model, *argv.split()), path) == wanted


# -- refusals ------------------------------------------------------------------------------------

REFUSALS = {row[0]: row for row in table("Refusals")}


@pytest.fixture(scope="module")
def files(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """What the table's names stand for."""
    folder = tmp_path_factory.mktemp("drafts")
    known = tiny_metadata()["tokenizer.ggml.tokens"]
    turned = {"tokenizer.ggml.tokens": [*known[1:], known[0]]}  # type: ignore[index]
    yield {
        "TARGET": model,
        "DRAFT": write_draft(folder / "draft.gguf"),
        "OTHER-VOCABULARY": write_draft(folder / "vocabulary.gguf", tokens=50),
        "OTHER-WIDTH": write_draft(folder / "width.gguf", width=64),
        "OTHER-LAYERS": write_draft(folder / "layers.gguf", target_layers=(9,)),
        "OTHER-MODEL": write_model(folder / "model.gguf", turned),
        "LLAMA": write_model(folder / "llama.gguf", {"general.architecture": "llama"}),
        "MISSING": folder / "missing.gguf",
    }


def refused(
    run: Any, row: str, names: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, str]:
    """Run a row's command line: its result, and what the row says of it."""
    _, line, said = REFUSALS[row]
    (argv,), (message,) = code(line), code(said)
    words = shlex.split(argv)
    while words[0].startswith("DFLASH"):
        name, _, value = words.pop(0).partition("=")
        monkeypatch.setenv(name, value)
    return run("decode", *(str(names.get(word, word)) for word in words), "-p", "hello"), message


@pytest.mark.parametrize("row", REFUSALS)
def test_a_refusal(
    run: Any, files: dict[str, Path], row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads: list[str] = []
    monkeypatch.setattr("specla.models.load.ModelFile.target", lambda *_: loads.append("a target"))
    found, message = refused(run, row, files, monkeypatch)
    assert (found.code, found.out, loads) == (2, "", [])
    assert len(found.err.splitlines()) == 1 and found.err.startswith("specla: error: ")
    assert message in found.err


def test_refusals_leave_nothing_behind(
    run: Any, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No option, no variable: the next run is what it was before."""
    plain = (
        "decode",
        files["TARGET"],
        "-p",
        "hello",
        "-n",
        "2",
        "--json",
        "--draft",
        files["DRAFT"],
    )
    before, variables = json.loads(run(*plain).out)["settings"], dict(os.environ)
    for row in REFUSALS:
        with monkeypatch.context() as patch:
            assert refused(run, row, files, patch)[0].code == 2
        assert dict(os.environ) == variables
    assert json.loads(run(*plain).out)["settings"] == before


NO_FILE = [
    row
    for row in REFUSALS
    if not any(name in REFUSALS[row][1] for name in ("OTHER", "LLAMA", "MISSING"))
    and row not in (
        # what is wrong shows only when target or draft is open
        "SpecLA without a draft", "SpecLA by environment without a draft",
        "a window without a draft that has one", "a block size without a draft that has one",
        "a block size for a draft of another kind", "two taus",
        "a block beyond what the draft was made for",
    )
]  # fmt: skip


@pytest.mark.parametrize("row", NO_FILE)
def test_most_refusals_open_no_file(
    run: Any, tmp_path: Path, row: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # neither file exists, and nobody finds out
    missing = {"TARGET": tmp_path / "t.gguf", "DRAFT": tmp_path / "d.gguf"}
    found, message = refused(run, row, missing, monkeypatch)
    assert found.code == 2 and message in found.err
