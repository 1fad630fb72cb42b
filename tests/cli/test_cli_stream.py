"""`specla decode` in this process: text as it comes, and Ctrl-C."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from cli.cli_expected import PROMPT, PROMPT_IDS, N, plainly, token_text

from specla.cli.interrupt import Interrupt

pytestmark = pytest.mark.usefixtures("heard_interrupts")


def test_text_is_written_token_by_token(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr("specla.cli.run_decode.write_text", written.append)
    run("decode", model, "-p", PROMPT, "-n", N, "--adapter", "none")
    text = token_text(plainly(model, PROMPT_IDS, N))
    assert "".join(written) == text
    assert len([piece for piece in written if piece]) > N // 2


@pytest.mark.parametrize("as_json", [False, True])
def test_ctrl_c_ends_the_text_cleanly(
    run, model: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    calls: list[int] = []

    def press(*_: object) -> bool:
        calls.append(1)
        if len(calls) == 5:
            signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr("specla.text.TextStream.feed", press)
    options = ["--json"] if as_json else []
    result = run("decode", model, "-p", PROMPT, "-n", 100, "--check", *options)
    assert result.code == 130
    assert "stop: cancelled\n" in result.err
    assert "check: 5 tokens, their logits and the state identical to plain decoding\n" in result.err
    assert "Traceback" not in result.err
    if as_json:
        found = json.loads(result.out)
        assert found["tokens"] == plainly(model, PROMPT_IDS, 5)
        assert found["stop"] == "cancelled"


def test_a_second_ctrl_c_ends_the_program(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def press_twice(*_: object) -> bool:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        return False

    monkeypatch.setattr("specla.text.TextStream.feed", press_twice)
    result = run("decode", model, "-p", PROMPT, "-n", 100, "--quiet")
    assert (result.code, result.err) == (130, "")


def test_the_first_press_cancels_the_second_raises() -> None:
    cancelled: list[bool] = []
    with pytest.raises(KeyboardInterrupt), Interrupt(lambda: cancelled.append(True)) as interrupt:
        assert not interrupt.pressed
        signal.raise_signal(signal.SIGINT)
        assert interrupt.pressed and cancelled == [True]
        signal.raise_signal(signal.SIGINT)
    assert cancelled == [True]


def test_where_ctrl_c_is_ignored_it_stays_so() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with Interrupt(lambda: None) as interrupt:
            signal.raise_signal(signal.SIGINT)
        assert not interrupt.pressed
    finally:
        signal.signal(signal.SIGINT, before)
