"""`specla inspect`, `adapters` and `backends`: what they list."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli.cli_model import write_model

from specla.adapters.base import Adapter, adapters


def test_inspect(run, model: Path) -> None:
    shown = run("inspect", model)
    assert (shown.code, shown.err) == (0, "")
    lines = dict(line.split("  ", 1) for line in shown.out.splitlines())
    lines = {label: text.strip() for label, text in lines.items()}
    assert lines["architecture"] == "qwen35"
    assert lines["layers"] == "2: 1 Gated DeltaNet, 1 attention"
    # S: 2 heads of 8 x 8; window: 3 inputs of 2 * 8 + 2 * 8 channels; float32
    assert lines["state"] == "896 bytes per sequence (recurrent 512 bytes, convolution 384 bytes)"
    # key 8, update 16, decay 2, input 32; float32
    assert lines["factor banks"] == "232 bytes per node, 2 banks"
    assert lines["KV cache"] == "64 bytes per token in f16, 128 bytes in f32"
    assert lines["served"] == "yes"


def test_inspect_as_json(run, model: Path) -> None:
    shown = run("inspect", model, "--json")
    found = json.loads(shown.out)
    assert found["serves"] is True and found["reason"] is None
    assert found["config"]["d_model"] == 32 and found["state"]["factor_bytes_per_node"] == 232


def test_inspect_says_why_a_model_is_not_served(run, tmp_path: Path) -> None:
    path = write_model(tmp_path / "m.gguf", {"general.architecture": "llama"})
    shown = run("inspect", path)
    assert (shown.code, shown.err) == (0, "")
    assert "served        no: " in shown.out and "'llama'" in shown.out
    assert json.loads(run("inspect", path, "--json").out)["serves"] is False


def test_adapters(run) -> None:
    shown = run("adapters")
    assert (shown.code, shown.err) == (0, "")
    lines = {line.split()[0]: line for line in shown.out.splitlines()}
    assert list(lines) == ["adapter", *adapters.names()]
    assert "max_match=8" in lines["ngram"] and "path (required)" in lines["replay"]
    found = {entry["name"]: entry for entry in json.loads(run("adapters", "--json").out)}
    assert found["ngram"]["options"]["max_match"] == 8
    assert found["replay"]["required"] == ["path"]
    assert found["none"] == {
        "name": "none", "origin": "specla", "needs": "nothing", "options": {}, "required": [],
        "problem": None,
    }  # fmt: skip


def test_what_adapters_need(run) -> None:
    needs = {entry["name"]: entry["needs"] for entry in json.loads(run("adapters", "--json").out)}
    assert needs["suffix"] == needs["ngram"] == "nothing"
    assert needs["chain"] == "draft file"
    assert needs["dspark"] == needs["ddtree"] == "draft file, features of the draft's layers"
    assert needs["mtp"] == "draft file or the target's layer, features of the last layer"
    assert needs["adaptive"] == needs["fallback"] == "other adapters"


def test_an_adapter_that_cannot_be_loaded_is_listed_with_the_reason(
    run, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Point:
        name, value, dist = "broken", "nowhere:Adapter", None

        def load(self) -> Any:
            raise ImportError("no module called nowhere")

    monkeypatch.setattr(adapters, "_entry_points", lambda: [Point()])
    shown = run("adapters")
    assert shown.code == 0
    assert "broken" in shown.out and "no module called nowhere" in shown.out


class _NoDataclass(Adapter):
    Options = dict


class _Unresolved(Adapter):
    @dataclass(frozen=True)
    class Options:
        depth: Nothing = 3  # type: ignore[name-defined]  # noqa: F821


class _Refusing(Adapter):
    @dataclass(frozen=True)
    class Options:
        depth: int = 3

        def __post_init__(self) -> None:
            raise ValueError("no such depth")


class _Exiting(Adapter):
    def __init__(self, options: Any = None) -> None:
        raise SystemExit(5)


@pytest.mark.parametrize("kind", [_NoDataclass, _Unresolved, _Refusing, _Exiting])
def test_faults_of_another_package_are_its_own(
    run, monkeypatch: pytest.MonkeyPatch, kind: type[Adapter]
) -> None:
    monkeypatch.setitem(adapters._factories, "foreign", lambda: kind)
    listed = run("adapters")
    assert listed.code == 0 and "foreign" in listed.out and "ngram" in listed.out
    refused = run(
        "decode", "-p", "x", "-n", "2", "--adapter", "foreign", "--adapter-opt", "depth=1"
    )
    if kind is _Exiting:
        refused = run("decode", "-p", "x", "-n", "2", "--adapter", "foreign")
    assert refused.code == 2 and "'foreign'" in refused.err
    assert refused.err.strip().count("\n") == 0 and "internal error" not in refused.err


def test_what_is_no_adapter_is_listed_as_such(run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters._factories, "foreign", lambda: object)
    (line,) = [line for line in run("adapters").out.splitlines() if line.startswith("foreign")]
    assert "is no subclass of" in line


def test_a_package_that_exits_while_it_is_loaded(run, monkeypatch: pytest.MonkeyPatch) -> None:
    class Point:
        name, value, dist = "leaving", "nowhere:Adapter", None

        def load(self) -> Any:
            raise SystemExit(3)

    monkeypatch.setattr(adapters, "_entry_points", lambda: [Point()])
    listed = run("adapters")
    assert listed.code == 0 and "SystemExit" in listed.out and "ngram" in listed.out


def test_options_made_by_a_factory(run, monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Options:
        depth: int = 3

    class Third(Adapter):
        pass

    Third.Options = Options
    monkeypatch.setitem(adapters._factories, "third", lambda: Third)
    assert "depth=3" in run("adapters").out
