"""What README and docs say must be so: commands run, links lead somewhere, the adapter works."""

from __future__ import annotations

import re
import shlex
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from specla.cli import main
from specla.models.load import bundled_model

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
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


@pytest.fixture
def echo_adapter(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The README's adapter, installed as the README says."""
    (code,) = [block for block in _blocks(README, "python") if "class EchoAdapter" in block]
    assert len(code.strip().splitlines()) <= 30, "the README promises 30 lines"
    (tmp_path / "my_package.py").write_text(code, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    point = EntryPoint("echo", "my_package:EchoAdapter", "specla.adapters")
    monkeypatch.setattr(
        "specla.core.registry.entry_points",
        lambda group: [point] if group == "specla.adapters" else [],
    )
    yield
    sys.modules.pop("my_package", None)


@pytest.mark.parametrize("command", _specla_commands())
def test_commands_run_as_written(
    command: str,
    echo_adapter: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen3.5-0.8B-Q8_0.gguf").symlink_to(bundled_model())
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    assert main() == 0, capsys.readouterr().err
    if "--check" in command:
        assert "identical to plain decoding" in capsys.readouterr().err


def test_the_guides_adapter_works(capsys: pytest.CaptureFixture[str]) -> None:
    from specla.backends import create_backend
    from specla.core.sampling import Sampler, SamplingParams
    from specla.engine import Request, Session
    from specla.models.load import open_model
    from specla.models.qwen35.target import TargetOptions

    guide = (ROOT / "docs" / "adapters.md").read_text(encoding="utf-8")
    (code,) = [block for block in _blocks(guide, "python") if "class BigramAdapter" in block]
    namespace: dict[str, type] = {}
    exec(code, namespace)
    model = open_model(bundled_model())
    target = model.target(create_backend("numpy"), TargetOptions(context=256))
    prompt = model.tokenizer.encode("The big dog saw the big dog.", parse_special=False)
    adapter = namespace["BigramAdapter"]()
    with Session(target, adapter, prompt) as session:
        list(session.generate(Request(24, Sampler(SamplingParams()), budget=8)))
        assert (session.stats.refused, session.stats.adapter_errors) == (0, 0)
        assert session.stats.mean_accept_length > 1
        text = [*session.tokens]
        counts = sum(c.total() for c in adapter.following.popitem()[1].values())
        assert counts == len(text) - 1, "each pair is learned once"
        adapter.open(session._view(0, 0))


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
