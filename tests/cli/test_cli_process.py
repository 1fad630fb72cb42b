"""The command as a process: streaming, signals, pipes that close, a kill in the middle."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.cli_process import command, environment, heed_sigint, start
from models.convert.hf_build import arrays, config, tokenizer_json, write_checkpoint

TIMEOUT = 60
# the two bytes of an accented letter are the likely tokens, in any order
LETTERS = ("--temp", "1", "--logit-bias", f"{0xC3}=50", "--logit-bias", f"{0xA9}=50")


def endless(model: Path, *argv: object) -> subprocess.Popen[bytes]:
    return start("decode", model, "-p", "hello", "-n", 40_000, "--ctx", 50_000, *LETTERS, *argv)


def read_some(process: subprocess.Popen[bytes]) -> bytes:
    assert process.stdout is not None
    return os.read(process.stdout.fileno(), 65536)


def test_text_streams_in_whole_characters(model: Path) -> None:
    process = endless(model)
    try:
        chunks = [read_some(process) for _ in range(20)]
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate(timeout=TIMEOUT)
    text = "".join(chunk.decode("utf-8") for chunk in chunks)
    assert "é" in text


@pytest.mark.parametrize("options", [[], ["--adapter", "none", "--check", "--quiet"]])
def test_sigint_stops_cleanly(model: Path, options: list[str]) -> None:
    process = endless(model, *options)
    seen = read_some(process)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=TIMEOUT)
    assert process.returncode == 130
    (seen + out).decode("utf-8")
    if "--quiet" in options:
        assert err == b""
    else:
        assert b"\nstop: cancelled\n" in err and b"Traceback" not in err


def test_a_reader_that_goes_away(model: Path) -> None:
    process = endless(model)
    assert read_some(process)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    err = process.stderr.read()
    assert process.wait(timeout=TIMEOUT) == 141
    assert b"rror" not in err and b"Exception" not in err


@pytest.mark.parametrize("argv", [["--help"], ["adapters"]])
def test_a_reader_that_never_was(argv: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        command(*argv), stdout=write, stderr=subprocess.PIPE, env=environment(), timeout=TIMEOUT
    )
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("closed", ["1>&-", "2>&-", "1>&- 2>&-", "0<&-"])
def test_closed_standard_streams(model: Path, closed: str) -> None:
    argv = command("decode", model, "-p", "hello", "-n", 2)
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}', "sh", *argv],
        capture_output=True,
        env=environment(),
        timeout=TIMEOUT,
    )
    if "1>&-" in closed:
        # a result that nobody can get is not a success
        assert done.returncode == 2
        if "2>&-" not in closed:
            assert b"standard output is closed" in done.stderr
            assert b"Traceback" not in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert b"rror" not in done.stderr


def test_utf8_whatever_the_locale(model: Path) -> None:
    argv = command("decode", model, "-p", "h", "-n", 30, *LETTERS, "--quiet")
    texts = [
        subprocess.run(argv, capture_output=True, env=environment(**changes), check=True).stdout
        for changes in ({}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "latin-1"})
    ]
    assert texts[0] == texts[1]
    assert "é" in texts[0].decode("utf-8")


def test_a_person_sees_a_table_and_a_prompt_on_a_new_line(model: Path) -> None:
    leader, follower = os.openpty()
    process = subprocess.Popen(
        command("decode", model, "-p", "hello", "-n", 3, *LETTERS, "--check"),
        stdin=follower,
        stdout=follower,
        stderr=follower,
        env=environment(TERM="dumb", COLUMNS="200"),
    )
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # how a terminal says that its other end is closed
        while chunk := os.read(leader, 65536):
            shown += chunk
    os.close(leader)
    assert process.wait(timeout=TIMEOUT) == 0
    lines = [line.rstrip() for line in shown.decode("utf-8", "replace").splitlines()]
    starts = [line.split("  ")[0] for line in lines]
    assert starts.index("adapter") < starts.index("rounds by length") < starts.index("stop")
    assert lines[-1] == "check: 3 tokens, their logits and the state identical to plain decoding"


SLOW_CONVERT = """
import sys, time
import specla.models.convert.output as module
from specla.cli import main

def write_half(file, metadata, tensors, progress):
    def stalled(done, total):
        progress(done, total)
        if done * 2 > total:
            file.flush()
            print("half", flush=True)
            time.sleep(600)
    return write(file, metadata, tensors, stalled)

write = module.write_gguf
module.write_gguf = write_half
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint") / "tiny-hf"
    settings = config(eos_token_id=263)
    write_checkpoint(folder, settings, arrays(settings))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer_json()))
    return folder


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("existing", [False, True])
def test_a_conversion_that_is_cut_off_leaves_no_half_file(
    checkpoint: Path, tmp_path: Path, number: signal.Signals, existing: bool
) -> None:
    output = tmp_path / "out.gguf"
    if existing:
        output.write_bytes(b"the old one")
    process = subprocess.Popen(
        [sys.executable, "-c", SLOW_CONVERT, "convert", checkpoint, "-o", output, "--force"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(),
        preexec_fn=heed_sigint,
    )
    assert process.stdout is not None and process.stdout.readline() == b"half\n"
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT)
    assert b"Traceback" not in err
    if existing:
        assert output.read_bytes() == b"the old one"
    else:
        assert not output.exists()
    if number is signal.SIGINT:
        assert process.returncode == 130
        assert [path.name for path in tmp_path.iterdir()] == ["out.gguf"] * existing


def test_what_is_converted_can_be_inspected_and_decoded(
    run, checkpoint: Path, tmp_path: Path
) -> None:
    output = tmp_path / "out.gguf"
    done = run("convert", checkpoint, "-o", output, "--outtype", "f16", "--name", "Tiny")
    assert (done.code, done.out) == (0, "")
    assert "written: " in done.err and str(output) in done.err
    before = output.read_bytes()
    again = run("convert", checkpoint, "-o", output)
    assert again.code == 2 and "--force" in again.err and output.read_bytes() == before
    assert run("convert", checkpoint, "-o", output, "--force", "--quiet").err == ""
    assert output.read_bytes() != before
    shown = run("inspect", output)
    assert shown.code == 0 and shown.err == ""
    assert "served        yes" in shown.out and "Q8_0 tensors" in shown.out
    assert run("decode", output, "-p", "the", "-n", "5", "--check", "--quiet").code == 0
