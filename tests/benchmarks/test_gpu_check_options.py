"""The check of a GPU refuses what makes no sense in one line, without torch; its verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_check
import pytest
from gpu.forests import branching, forest
from gpu.goals import judge
from gpu.inexact import free_text
from gpu.parts import Findings, Setting, run_parts
from gpu.sizes import FULL, TINY
from gpu.timing import Timer

from specla.core.schedule import heavy_light

SCRIPT = Path(gpu_check.__file__)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--only", "everything"], "'everything' is not one of 'correctness', 'environment'"),
        (["--minutes", "nan"], "--minutes is nan; give a number"),
        (["--minutes", "0"], "0.0 is not in the range 0.1<=x<=600"),
        (["--out", "/missing/folder/x.json"], "no folder /missing/folder; make it first"),
        (["--fast"], "No such option '--fast'"),
    ],
)
def test_a_bad_option_is_one_line(
    options: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu_check.main(options) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    assert err.startswith("gpu_check: error: ") and words.split("'--")[0] in err


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_only_a_file_is_replaced(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A device, such as /dev/null, would be gone for everybody."""
    out = tmp_path / "out"
    make = {"pipe": os.mkfifo, "link": lambda path: path.symlink_to("x"), "folder": os.mkdir}
    make[kind](out)
    before = os.lstat(out).st_ino
    assert gpu_check.main(["--out", str(out)]) == 2
    assert "it is no regular file; name another place" in capsys.readouterr().err
    assert os.lstat(out).st_ino == before and [*tmp_path.iterdir()] == [out]


def test_a_folder_that_takes_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried: permissions say nothing to root, nor of /proc."""

    def refuse(**_: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(gpu_check.tempfile, "TemporaryFile", refuse)
    assert gpu_check.main(["--out", str(tmp_path / "x.json")]) == 2
    assert "Read-only file system; name another place" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--rehearse"]])
def test_without_torch_it_says_how_to_get_it(options: list[str], tmp_path: Path) -> None:
    # a finder that knows no torch, in a process of its own
    code = (
        "import importlib.util as u, sys; real = u.find_spec;"
        "u.find_spec = lambda name, *a: None if name == 'torch' else real(name, *a);"
        "import gpu_check; status = gpu_check.main(sys.argv[1:]);"
        "assert not {'torch', 'triton'} & set(sys.modules); sys.exit(status)"
    )
    out = tmp_path / "result.json"
    path = os.pathsep.join([str(SCRIPT.parent), str(SCRIPT.parents[1])])
    done = subprocess.run(
        [sys.executable, "-c", code, *options, "--out", str(out)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("gpu_check: error: ")
    assert "the package torch isn't installed; install it with pip install" in line
    assert not done.stdout and not out.exists()


def test_help_names_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu_check.main(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(option in out for option in ("--only", "--out", "--minutes", "--rehearse"))


def _setting() -> Setting:
    from gpu.parts import Clock

    return Setting(TINY, "cpu", True, Timer(rehearsal=True), Clock(60))


def test_a_part_that_fails_stops_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    def broken(setting: Setting, findings: Findings) -> None:
        findings.rows("rows").append({"first": 1})
        raise RuntimeError("out of\nmemory")

    def wrong(setting: Setting, findings: Findings) -> None:
        findings.problem("a byte differs")

    def right(setting: Setting, findings: Findings) -> None:
        findings.figures["answer"] = 42

    parts = {"broken": (1.0, broken), "wrong": (1.0, wrong), "right": (1.0, right)}
    results = run_parts(_setting(), parts, parts, 60)
    assert [part["status"] for part in results.values()] == ["failed", "failed", "done"]
    assert results["broken"]["error"] == "RuntimeError: out of memory"
    assert results["broken"]["rows"] == [{"first": 1}]
    assert results["wrong"]["problems"] == ["a byte differs"]
    assert results["right"]["answer"] == 42
    out = capsys.readouterr().out
    assert "FAILED: broken: RuntimeError: out of memory" in out and "WRONG: a byte differs" in out


def test_parts_share_the_time_that_is_left() -> None:
    seen = {}

    def part(setting: Setting, findings: Findings) -> None:
        seen[len(seen)] = setting.clock.left

    run_parts(_setting(), {"a": (1.0, part), "b": (3.0, part)}, ["a", "b"], 400)
    assert 99 < seen[0] <= 100 and 399 < seen[1] <= 400
    results = run_parts(_setting(), {"a": (1.0, part)}, ["a"], 0)
    assert results["a"]["status"] == "incomplete" and results["a"]["left_out"] == ["all of it"]
    assert len(seen) == 2


def _results(**changes: Any) -> dict[str, dict[str, Any]]:
    def row(nodes: int, verify: float, batch: int = 1, price: float = 0.02) -> dict[str, Any]:
        return {"nodes": nodes, "batch": batch, "verify": verify, "price": price}

    def product(n: int, seconds: float | None) -> dict[str, Any]:
        return {"kind": "Q4_K", "matrix": "z", "n": n, "n_bytes": 8, "seconds": seconds}

    results: dict[str, dict[str, Any]] = {
        "recurrence": {"verify": [row(1, 1.0), row(22, 1.2), row(22, 1.4), row(22, 9.0, batch=8)]},
        "products": {"copy_bandwidth": 10.0, "products": [product(1, 1.0), product(22, 9.0)]},
        "decoding": {
            "plain_tokens_per_second": 99.0,
            "replay": [{"accept": 5, "speed_up": 3.0}, {"accept": 5, "speed_up": 3.6}],
        },
    }
    for part, figures in changes.items():
        results[part] = results.get(part, {}) | figures
    return results


def test_goals_are_judged_by_the_worst_case() -> None:
    judged = judge(_results())
    assert [one.found for one in judged] == [1.4, 2.0, 80.0, 99.0, 3.6]
    assert [one.verdict for one in judged] == ["met", "met", "met", "not met", "met"]
    json.dumps([one.report() for one in judged], allow_nan=False)


def test_what_was_not_measured_is_no_success() -> None:
    assert {one.verdict for one in judge({})} == {"not measured"}
    # one case without a time, because its output was wrong, and nothing is known of the worst
    rows = [*_results()["recurrence"]["verify"]]
    rows[1] = rows[1] | {"verify": None, "price": None}
    growth, price, *_ = judge(_results(recurrence={"verify": rows}))
    assert growth.verdict == price.verdict == "not measured"
    first, *_ = judge(_results(recurrence={"left_out": ["22 nodes, tree, batch 8"]}))
    assert first.verdict == "met in the cases that were reached"


@pytest.mark.parametrize("nodes", [1, 2, 3, 4, 8, 16, 22, 64])
def test_trees_are_trees_of_that_size(nodes: int) -> None:
    tree = branching(nodes)
    assert len(tree) == nodes
    schedule = heavy_light(forest("tree", nodes, 1))
    assert (len(schedule.chains) > 1) == (nodes > 2)
    assert len(forest("chain", nodes, 8).trees) == 8
    assert len(heavy_light(forest("chain", nodes, 8)).chains) == 8


def test_a_source_without_ordered_sums_is_refused() -> None:
    assert (
        free_text("d = halves_of_rows(s * k[:, None], LOG, BV)") == "d = tl.sum(s * k[:, None], 0)"
    )
    for text in ("import halves_of_rows", "halves_of_rows(x, LOG, BV)\nhalves_of_rows(x)"):
        with pytest.raises(RuntimeError, match="name the sums"):
            free_text(text)


def test_the_measured_shape_is_the_27b_one() -> None:
    config = FULL.shape.config("27b")
    assert (config.n_gdn_layers, config.n_attention_layers) == (48, 16)
    assert config.conv_channels == 10_240 and not config.tied_output
    sizes = {name: (rows, cols) for name, rows, cols in FULL.matrices}
    assert sizes["q and gate"] == (12_288, 5120) and sizes["GDN out"] == (5120, 6144)
