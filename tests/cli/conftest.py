"""Running the command line in this process, and a model for it."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli.cli_model import write_model

from specla.backends import create_backend
from specla.cli import main


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """run(*argv, stdin=b""): exit code and what was printed."""

    def call(*argv: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in argv])
        return Result(code, *capsys.readouterr())

    return call


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with a tokenizer and a chat template; its kernels are compiled already."""
    create_backend().prepare(["F32"])
    return write_model(tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture
def heard_interrupts() -> Iterator[None]:
    """Whatever the shell said about SIGINT (a job in the background ignores it); the command must
    leave this handler behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler
