"""`specla decode` with a crooked backend or a bad adapter: found, named, never a wrong text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli.cli_expected import PROMPT, PROMPT_IDS, N, plainly, token_text

from specla.adapters.base import Adapter, Needs, adapters
from specla.backends import backends
from specla.backends.numpy.backend import NumpyBackend
from specla.core.proposal import Proposal
from specla.errors import OptionError


class CrookedBackend(NumpyBackend):
    """A defect that only speculation meets."""

    name = "crooked"

    def gdn_verify(self, *args: Any, **kwargs: Any) -> None:
        super().gdn_verify(*args, **kwargs)
        out = kwargs["out"] if "out" in kwargs else args[-1]
        out *= 1.01


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch):
    def add(registry: Any, name: str, kind: type[Any]) -> None:
        monkeypatch.setitem(registry._factories, name, lambda: kind)

    return add


def test_a_difference_is_found_and_named(run, model: Path, registered) -> None:
    registered(backends, "crooked", CrookedBackend)
    argv = ("decode", model, "-p", PROMPT, "-n", 8, "--backend", "crooked", "--check", "--quiet")
    result = run(*argv)
    assert result.code == 1
    assert result.err == "specla: error: check failed: logits differ at position 2\n"
    shown = json.loads(run(*argv, "--json").out)["check"]
    assert shown == {"identical": False, "difference": "logits differ at position 2"}


class BadAdapter(Adapter):
    def propose(self, views: Any) -> list[Proposal]:
        raise RuntimeError("out of ideas")


class WildAdapter(Adapter):
    def propose(self, views: Any) -> list[Proposal]:
        return [Proposal([1, 1], [-1, -1]) for _ in views]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [(BadAdapter, "RuntimeError: out of ideas"), (WildAdapter, "proposed a bad")],
)
def test_a_bad_adapter_costs_speed_and_is_named(
    run, model: Path, registered, kind: type[Adapter], reason: str
) -> None:
    registered(adapters, "third", kind)
    result = run("decode", model, "-p", PROMPT, "-n", N, "--adapter", "third", "--check")
    assert result.code == 0
    assert result.out == token_text(plainly(model, PROMPT_IDS, N))
    (line,) = [line for line in result.err.splitlines() if line.startswith("refused: ")]
    assert line.startswith(f"refused: {N - 1} proposals") and "'third'" in line and reason in line


class Unbuildable(WildAdapter):
    def __init__(self, options: Any = None) -> None:
        raise RuntimeError("no licence")


class Unfit(WildAdapter):
    def bind(self, target: Any) -> None:
        raise OptionError("made for another vocabulary")


class Demanding(WildAdapter):
    def needs(self) -> Needs:
        return Needs(features=(99,))


class DemandingFromTheEnd(WildAdapter):
    def needs(self) -> Needs:
        return Needs(features=(-1, -3))


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (Unbuildable, "no licence"),
        (Unfit, "another vocabulary"),
        (Demanding, "layer 99"),
        (DemandingFromTheEnd, "layer -3; this model has layers 0..1"),
    ],
)
def test_an_adapter_that_cannot_be_used_is_named(
    run, model: Path, registered, kind: type[Adapter], reason: str
) -> None:
    registered(adapters, "third", kind)
    result = run("decode", model, "-p", PROMPT, "--adapter", "third", "--quiet")
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) == 1
    assert "adapter 'third'" in result.err and reason in result.err
