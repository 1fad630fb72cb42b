"""`specla decode --check` itself on the bundled model, and the file that ships with the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specla.cli import main
from specla.models.load import bundled_model

PROMPT = ("-p", "The big dog said hello. The big cat said hello. The big dog said", "-n", "12")
SAMPLED = ("--temp", "0.8", "--top-k", "40", "--top-p", "0.95", "--seed", "3")


@pytest.fixture(scope="session")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Any text will do: acceptance is up to the target."""
    path = tmp_path_factory.mktemp("replay") / "tokens.json"
    path.write_text(json.dumps(list(range(300, 360))))
    return path


@pytest.mark.parametrize("adapter", ["none", "ngram", "replay"])
@pytest.mark.parametrize("sampling", [(), SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("budget", [1, 22, 64])
@pytest.mark.parametrize("chunk", [7, 512])
def test_check_passes(
    adapter: str,
    sampling: tuple[str, ...],
    budget: int,
    chunk: int,
    recording: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    argv = ["decode", *PROMPT, *sampling, "--check", "--adapter", adapter]
    argv += ["--budget", str(budget), "--chunk", str(chunk)]
    if adapter == "replay":
        argv += ["--adapter-opt", f"path={recording}", "--adapter-opt", "branch=2"]
    assert main(argv) == 0
    message = capsys.readouterr().err
    assert "check: 12 tokens, their logits and the state identical to plain decoding" in message


@pytest.mark.parametrize("option", ["--no-fast-rollback", "--seq-verify"])
@pytest.mark.parametrize("sampling", [(), SAMPLED], ids=["greedy", "sampled"])
def test_check_passes_with_other_ways_to_verify(
    option: str, sampling: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["decode", *PROMPT, *sampling, "--json", "--quiet"]
    assert main([*argv, "--adapter", "none"]) == 0
    recording = tmp_path / "right.json"
    recording.write_text(capsys.readouterr().out)
    argv += ["--adapter", "replay", "--adapter-opt", f"path={recording}"]
    assert main([*argv, "--adapter-opt", "branch=3", "--check", option]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["check"]["identical"] and found["stats"]["mean_accept_length"] == 6


def test_the_package_stays_small() -> None:
    assert bundled_model().stat().st_size <= 12_000_000


def test_the_text_reads_as_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decode", "-p", "Once upon a time", "-n", "40", "--quiet"]) == 0
    text = capsys.readouterr().out
    assert text.startswith(", there was a little girl named")
    assert text.count(".") >= 2
