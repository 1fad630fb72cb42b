"""Devices, pipes and links where a file is expected: refused at once, and never replaced."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models.convert import hf_build

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")


def refused(result: Any, words: str) -> None:
    assert result.code == 2, result.err
    assert result.out == ""
    lines = result.err.splitlines()
    assert words in lines[-1]
    assert "Traceback" not in result.err


def _checkpoint(folder: Path) -> Path:
    config = hf_build.config()
    return hf_build.write_checkpoint(folder / "hf", config, hf_build.arrays(config))


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def _zero(path: Path) -> Path:
    path.symlink_to("/dev/zero")
    return path


SPECIAL: list[Callable[[Path], Path]] = [_pipe, _zero]


@pytest.mark.parametrize("special", SPECIAL)
def test_a_recording(run: Any, model: Path, tmp_path: Path, special: Any) -> None:
    path = special(tmp_path / "recording.json")
    argv = ("decode", model, "-p", "a", "--adapter", "replay", "--adapter-opt", f"path={path}")
    refused(run(*argv), "not a regular file")


@pytest.mark.parametrize("special", SPECIAL)
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_checkpoints_files(run: Any, tmp_path: Path, special: Any, name: str) -> None:
    folder = _checkpoint(tmp_path)
    (folder / name).unlink()
    special(folder / name)
    refused(run("convert", folder, "-o", tmp_path / "x.gguf", "--no-tokenizer"), name)


@pytest.mark.parametrize("special", SPECIAL)
def test_an_output_is_never_a_device(run: Any, tmp_path: Path, special: Any) -> None:
    folder = _checkpoint(tmp_path)
    path = special(tmp_path / "x.gguf")
    before = os.lstat(path)
    result = run("convert", folder, "-o", path, "--no-tokenizer", "--force")
    refused(result, "no regular file")
    assert stat.S_IFMT(os.lstat(path).st_mode) == stat.S_IFMT(before.st_mode)


def test_a_dangling_link_is_not_replaced(run: Any, tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path)
    path = tmp_path / "x.gguf"
    path.symlink_to("nowhere")
    refused(run("convert", folder, "-o", path, "--no-tokenizer"), "no regular file")
    assert path.is_symlink()


def test_a_name_that_is_not_text(run: Any, tmp_path: Path) -> None:
    folder = _checkpoint(tmp_path)
    result = run("convert", folder, "-o", tmp_path / "x.gguf", "--no-tokenizer", "--name", "\udcff")
    refused(result, "--name")
