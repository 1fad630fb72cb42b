"""`specla decode`: from what the user gives to prompt tokens."""

from __future__ import annotations

import json
from pathlib import Path

from cli.cli_expected import END, PROMPT_IDS, TOKENS
from cli.cli_model import TEMPLATE, write_model


def prompt_ids(run, *argv: object, stdin: bytes = b"") -> list[int]:
    result = run("decode", *argv, "-n", 0, "--json", "--quiet", stdin=stdin)
    assert result.code == 0, result.err
    return json.loads(result.out)["prompt_tokens"]


def test_where_the_prompt_comes_from(run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(b"hello world\n")
    expected = PROMPT_IDS
    assert prompt_ids(run, model, "-f", path) == expected
    assert prompt_ids(run, model, "-f", "-", stdin=b"hello world\n") == expected
    assert prompt_ids(run, model, stdin=b"hello world\n") == expected
    assert prompt_ids(run, model, "-p", "hello", stdin=b" world") == PROMPT_IDS[:1]


def test_line_ends_are_taken_as_they_are_but_for_the_last(run, model: Path) -> None:
    assert prompt_ids(run, model, stdin=b"\r\n\r") == [13, 10, 13]
    assert prompt_ids(run, model, stdin=b"\n\n") == [10]
    assert prompt_ids(run, model, stdin=b"\r\r\n") == [13]
    assert prompt_ids(run, model, "-p", "\n") == [10]


def test_an_empty_prompt_begins_a_text(run, model: Path, tmp_path: Path) -> None:
    assert prompt_ids(run, model, "-p", "") == [END]
    begins = write_model(tmp_path / "bos.gguf", {"tokenizer.ggml.bos_token_id": 5})
    assert prompt_ids(run, begins, "-p", "") == [5]
    assert prompt_ids(run, begins, "-p", "h") == [104]


def test_the_first_token_that_a_model_asks_for(run, tmp_path: Path) -> None:
    changes = {"tokenizer.ggml.bos_token_id": END, "tokenizer.ggml.add_bos_token": True}
    path = write_model(tmp_path / "bos.gguf", changes)
    assert prompt_ids(run, path, "-p", "h") == [END, 104]
    assert prompt_ids(run, path, "-p", "") == [END]
    # a text that has it already gets no second one
    assert prompt_ids(run, path, "-p", "<|end|>h", "--special") == [END, 104]


def test_special_tokens_in_a_prompt(run, model: Path) -> None:
    assert prompt_ids(run, model, "-p", "<|end|>") == [ord(c) for c in "<|end|>"]
    assert prompt_ids(run, model, "-p", "<|end|>", "--special") == [END]


def test_chat(run, model: Path) -> None:
    opens, ends = TOKENS.index("<|im_start|>"), TOKENS.index("<|im_end|>")

    def turn(role: str, text: list[int]) -> list[int]:
        return [opens, *map(ord, role), 10, *text, ends, 10]

    last = [opens, *map(ord, "assistant"), 10]
    hi = list(b"hi")
    assert "im_start" in TEMPLATE
    assert prompt_ids(run, model, "-p", "hi", "--chat") == [*turn("user", hi), *last]
    found = prompt_ids(run, model, "-p", "hi", "--chat", "--system", "hi")
    assert found == [*turn("system", hi), *turn("user", hi), *last]
