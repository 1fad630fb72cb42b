"""`specla convert` on a drafter: options, notes, refusals, and `inspect` of what it wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from models.convert import dflash_build as draft
from models.convert import hf_build as build

from specla.models.load import bundled_model

WIDTH, VOCAB = 256, 2048


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A drafter of the bundled target."""
    monkeypatch.setattr(draft, "WIDTH", WIDTH)
    monkeypatch.setattr(draft, "VOCAB", VOCAB)
    c = draft.nested(hidden_size=WIDTH, vocab_size=VOCAB)
    return draft.checkpoint(tmp_path, c, draft.arrays(draft.shapes()))


def test_convert_and_inspect(run, folder: Path, tmp_path: Path) -> None:
    output = tmp_path / "d.gguf"
    done = run("convert", folder, "-o", output, "--target", bundled_model())
    assert done.code == 0 and "note" not in done.err
    assert "F32" in done.err and "Q8_0" in done.err
    shown = run("inspect", output)
    assert shown.code == 0
    assert "DFlash, blocks of 8, mask token 90" in shown.out
    assert "targets of width 256, vocabulary 2048, at least 7 layers" in shown.out
    assert "gpt2/qwen35" in shown.out


def test_side_file_and_notes(run, folder: Path, tmp_path: Path) -> None:
    heads = draft.arrays(draft.markov_shapes(VOCAB, "dspark_markov_head."))
    side = tmp_path / "heads.safetensors"
    build.write_safetensors(side, heads)
    output = tmp_path / "d.gguf"
    done = run("convert", folder, "-o", output, "--aux-heads", side, "--outtype", "f16")
    assert done.code == 0
    assert "note: sample_from_anchor is missing; false was assumed" in done.err
    assert "note: written without a tokenizer" in done.err
    assert "Markov of rank 8" in run("inspect", output).out


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--aux-heads", "x", "--no-aux-heads"], "exclude each other"),
        (["--aux-heads", "x"], "no such file"),
        (["--target", "none.gguf"], "none.gguf"),
        (["--no-mtp"], "holds a drafter, for which the option mtp has no meaning"),
    ],
)
def test_refusals(run, folder: Path, tmp_path: Path, options: list[str], expected: str) -> None:
    done = run("convert", folder, "-o", tmp_path / "d.gguf", *options)
    assert done.code == 2 and expected in done.err
    assert done.err.count("\n") <= 2 and not (tmp_path / "d.gguf").exists()
