"""What README and docs say must be so: commands run, links lead somewhere, the adapter works."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

from specla.cli import main
from specla.models.load import bundled_drafter, bundled_model

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def _blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def _specla_commands() -> list[str]:
    """Every `specla ...` line of a shell block, and the part of a compound one behind `&&`."""
    lines = [
        part.strip()
        for page in PAGES
        for block in _blocks(page.read_text(encoding="utf-8"), "bash")
        for line in block.splitlines()
        for part in line.split("&&")
    ]
    return [line for line in dict.fromkeys(lines) if line.startswith("specla ")]


def _doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def _block_with(text: str, words: str) -> str:
    (code,) = [block for block in _blocks(text, "python") if words in block]
    return code


@pytest.fixture
def announced_adapters(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The adapters of README and guide, installed as these say."""
    echo = _block_with(README, "class EchoAdapter")
    bigram = _block_with(_doc("adapters.md"), "class BigramAdapter")
    for code in (echo, bigram):
        lines = [line for line in code.splitlines() if line.strip()]
        assert len(lines) <= 30, "both promise 30 lines"
    (tmp_path / "my_package.py").write_text(echo + bigram, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [
        EntryPoint(name, f"my_package:{kind}", "specla.adapters")
        for name, kind in (("echo", "EchoAdapter"), ("bigram", "BigramAdapter"))
    ]
    monkeypatch.setattr(
        "specla.core.registry.entry_points",
        lambda group: points if group == "specla.adapters" else [],
    )
    yield
    sys.modules.pop("my_package", None)


@pytest.mark.parametrize("command", _specla_commands())
def test_commands_run_as_written(
    command: str,
    announced_adapters: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen3.5-0.8B-Q8_0.gguf").symlink_to(bundled_model())
    (tmp_path / "drafter.gguf").symlink_to(bundled_drafter())
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    assert main() == 0, capsys.readouterr().err
    if "--check" in command:
        assert "identical to plain decoding" in capsys.readouterr().err


def test_the_guides_adapter_keeps_the_contract() -> None:
    from specla.testing import check_adapter

    namespace: dict[str, Any] = {}
    exec(_block_with(_doc("adapters.md"), "class BigramAdapter"), namespace)
    report = check_adapter(namespace["BigramAdapter"], tokens=8, skip=["cancel"])
    assert any(figures.accept_length > 1.1 for figures in report.figures)


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("testing-adapters.md", "def test_it_keeps_the_contract"),
        ("testing-adapters.md", "class Greedy"),
        ("backends.md", "def test_my_backend"),
    ],
)
def test_the_tests_of_the_guides_pass(page: str, words: str) -> None:
    namespace: dict[str, Any] = {}
    exec(_block_with(_doc(page), words), namespace)
    tests = [value for name, value in namespace.items() if name.startswith("test_")]
    assert len(tests) == 1
    tests[0]()


def test_decoding_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    exec(_block_with(_doc("python.md"), "open_model"), {})
    assert "'emitted_tokens': 32" in capsys.readouterr().out


def test_the_guides_list_every_check() -> None:
    from specla.testing import adapter_checks

    listed = re.findall(r"^\| `([a-z._]+)` \|", _doc("testing-adapters.md"), flags=re.MULTILINE)
    assert listed == adapter_checks.names()


def test_there_are_commands_to_run() -> None:
    assert len(_specla_commands()) >= 5


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.split("#")[0]).exists(), target


def test_every_registered_adapter_is_in_the_guide() -> None:
    import specla.adapters  # noqa: F401
    from specla.adapters.base import adapters

    guide = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    missing = [name for name in adapters._factories if f"`{name}`" not in guide]
    assert not missing
