"""Whatever a user gets wrong: one line on standard error, exit code 2, nothing else."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cli.cli_model import keys, model_bytes
from models.gguf.gguf_build import Typed, tensor

import specla.cli.memory

GOOD = model_bytes()
END_OF_HEADER = len(GOOD) - 120_624 - 32


def truncated(size: int) -> bytes:
    assert 0 < size < len(GOOD)
    return GOOD[:size]


def without(key: str) -> bytes:
    assert key in keys()
    return model_bytes({key: None})


def with_key(key: str, value: Any) -> bytes:
    return model_bytes({key: value})


def with_tensor(name: str, value: Any) -> bytes:
    return model_bytes(None, {name: value})


def zeros(*shape: int) -> Any:
    return tensor(np.zeros(shape, dtype=np.float32))


BAD_MODELS: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "not GGUF": (b"PK\3\4" + bytes(200), "GGUF"),
    "garbage": (np.random.default_rng(0).bytes(5000), "GGUF"),
    "text": (b"Once upon a time there was no model\n" * 20, "GGUF"),
    "magic only": (truncated(4), "truncated|ends|short|damaged"),
    "cut in the counts": (truncated(17), "truncated|ends|short|damaged"),
    "cut in a key": (truncated(200), "truncated|ends|short|damaged"),
    "cut in the tensor table": (truncated(END_OF_HEADER - 100), "truncated|ends|short|damaged"),
    "cut in a tensor": (truncated(len(GOOD) // 2), "truncated|ends|short|damaged|beyond"),
    "last bytes missing": (truncated(len(GOOD) - 100), "truncated|ends|short|damaged|beyond"),
    "future version": (GOOD[:4] + struct.pack("<I", 99) + GOOD[8:], "99"),
    "absurd tensor count": (GOOD[:8] + struct.pack("<Q", 1 << 60) + GOOD[16:], str(1 << 60)),
    "absurd key count": (GOOD[:16] + struct.pack("<Q", 1 << 61) + GOOD[24:], str(1 << 61)),
    "wrong architecture": (with_key("general.architecture", "llama"), "llama"),
    "no architecture": (without("general.architecture"), "general.architecture"),
    "missing key": (without("qwen35.ssm.state_size"), "qwen35.ssm.state_size"),
    "key of the wrong type": (with_key("qwen35.block_count", "two"), "qwen35.block_count"),
    "absurd width": (with_key("qwen35.embedding_length", 1 << 31), str(1 << 31)),
    "absurd layers": (with_key("qwen35.block_count", 4_000_000_000), "4000000000"),
    "no layers": (with_key("qwen35.block_count", 0), "qwen35.block_count"),
    "heads that don't divide": (with_key("qwen35.attention.head_count", 3), "head|shape"),
    "NaN epsilon": (
        with_key("qwen35.attention.layer_norm_rms_epsilon", float("nan")), "rms_epsilon"
    ),
    "missing tensor": (with_tensor("blk.0.attn_qkv.weight", None), "blk.0.attn_qkv.weight"),
    "wrong tensor shape": (with_tensor("blk.1.attn_k.weight", zeros(3, 5)), "blk.1.attn_k.weight"),
    "NaN in a tensor": (
        with_tensor("blk.0.ssm_a", tensor(np.full(2, np.nan, dtype=np.float32))), "blk.0.ssm_a"
    ),
    "no tokenizer": (without("tokenizer.ggml.model"), "tokenizer.ggml.model"),
    "another tokenizer": (with_key("tokenizer.ggml.model", "llama"), "tokenizer.ggml.model"),
    "unknown pre-tokeniser": (with_key("tokenizer.ggml.pre", "morse"), "morse"),
    "token types cut": (with_key("tokenizer.ggml.token_type", Typed("i32", [1, 2])), "token_type"),
    "eos out of range": (with_key("tokenizer.ggml.eos_token_id", 99_999), "99999"),
    "broken merges": (with_key("tokenizer.ggml.merges", ["x"]), "merges"),
}  # fmt: skip


def assert_refused(result: Any, what: str) -> None:
    lines = result.err.splitlines()
    assert result.code == 2
    assert len(lines) == 1 and result.err.endswith("\n"), result.err
    assert lines[0].startswith("specla: error: ")
    assert "Traceback" not in result.err
    assert result.out == ""
    assert any(word in lines[0] for word in what.split("|")), lines[0]


@pytest.mark.parametrize("name", BAD_MODELS)
def test_bad_model_files(run, tmp_path: Path, name: str) -> None:
    data, what = BAD_MODELS[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    assert_refused(run("decode", path, "-p", "hello"), what)


@pytest.mark.parametrize(
    "name", ["empty", "garbage", "text", "magic only", "cut in a key", "cut in a tensor"]
)
def test_inspect_of_what_is_no_gguf_file(run, tmp_path: Path, name: str) -> None:
    data, what = BAD_MODELS[name]
    path = tmp_path / "bad.gguf"
    path.write_bytes(data)
    assert_refused(run("inspect", path), what)
    assert_refused(run("inspect", path, "--json"), what)


Case = tuple[list[str], str]

# {m} is the good model, {d} an empty folder
OPTIONS: dict[str, Case] = {
    "no such model": (["{d}/none.gguf", "-p", "x"], "none.gguf"),
    "model is a folder": (["{d}", "-p", "x"], "folder"),
    "model below a file": (["{m}/x.gguf", "-p", "x"], "x.gguf"),
    "model name with a NUL": (["a\0b", "-p", "x"], "can't open"),
    "model name with a newline": (["{d}/a\nb", "-p", "x"], "a\\nb"),
    "two prompts": (["{m}", "-p", "x", "-f", "{m}"], "--file"),
    "no such prompt file": (["{m}", "-f", "{d}/none.txt"], "none.txt"),
    "prompt file is a folder": (["{m}", "-f", "{d}"], "prompt file"),
    "prompt file that isn't UTF-8": (["{m}", "-f", "{m}"], "UTF-8"),
    "prompt that isn't UTF-8": (["{m}", "-p", "a\udcffb"], "UTF-8"),
    "prompt longer than the context": (["{m}", "-p", "z" * 300], "300"),
    "prompt longer than --ctx": (["{m}", "-p", "zyzy", "--ctx", "3"], "--ctx"),
    "unknown adapter": (["{m}", "-p", "x", "--adapter", "oracle"], "adaptive, chain"),
    "unknown backend": (["{m}", "-p", "x", "--backend", "abacus"], "numpy"),
    "no thread": (["{m}", "-p", "x", "--threads", "0"], "--threads is 0; it must be 1..256"),
    "too many threads": (["{m}", "-p", "x", "--threads", "257"], "--threads is 257"),
    "threads in words": (["{m}", "-p", "x", "--threads", "all"], "all"),
    "threads where there is one": (
        ["{m}", "-p", "x", "--backend", "numpy", "--threads", "2"], "'numpy' computes on one"
    ),
    "unknown adapter option": (["{m}", "-p", "x", "--adapter-opt", "colour=red"], "colour"),
    "bad adapter option value": (["{m}", "-p", "x", "--adapter-opt", "min_match=red"], "'red'"),
    "adapter option out of range": (["{m}", "-p", "x", "--adapter-opt", "min_match=0"], "1 to"),
    "adapter option without value": (["{m}", "-p", "x", "--adapter-opt", "max_match"], "KEY=VALUE"),
    "adapter option twice": (
        ["{m}", "-p", "x", "--adapter-opt", "max_match=3", "--adapter-opt", "max_match=4"], "twice"
    ),
    "adapter option missing": (["{m}", "-p", "x", "--adapter", "replay"], "path"),
    "adapter file missing": (
        ["{m}", "-p", "x", "--adapter", "replay", "--adapter-opt", "path={d}/no.json"], "no.json"
    ),
    "negative temperature": (["{m}", "-p", "x", "--temp", "-1"], "temperature"),
    "NaN temperature": (["{m}", "-p", "x", "--temp", "nan"], "temperature"),
    "infinite temperature": (["{m}", "-p", "x", "--temp", "inf"], "temperature"),
    "temperature in words": (["{m}", "-p", "x", "--temp", "hot"], "hot"),
    "top-p above 1": (["{m}", "-p", "x", "--top-p", "1.5"], "top_p"),
    "negative top-k": (["{m}", "-p", "x", "--top-k", "-3"], "top_k"),
    "min-p above 1": (["{m}", "-p", "x", "--min-p", "2"], "min_p"),
    "negative seed": (["{m}", "-p", "x", "--seed", "-1"], "seed"),
    "huge seed": (["{m}", "-p", "x", "--seed", str(1 << 64)], "seed"),
    "zero repeat penalty": (["{m}", "-p", "x", "--repeat-penalty", "0"], "repetition_penalty"),
    "huge frequency penalty": (["{m}", "-p", "x", "--frequency-penalty", "1e9"], "frequency"),
    "NaN presence penalty": (["{m}", "-p", "x", "--presence-penalty", "nan"], "presence"),
    "negative penalty window": (["{m}", "-p", "x", "--penalty-window", "-1"], "window"),
    "negative tokens": (["{m}", "-p", "x", "-n", "-1"], "--max-tokens"),
    "tokens in words": (["{m}", "-p", "x", "-n", "many"], "many"),
    "negative budget": (["{m}", "-p", "x", "--budget", "-1"], "--budget"),
    "huge budget": (["{m}", "-p", "x", "--budget", "4096"], "4095"),
    "no context": (["{m}", "-p", "x", "--ctx", "0"], "--ctx"),
    "huge context": (["{m}", "-p", "x", "--ctx", "1000000000"], "1000000000"),
    "no chunk": (["{m}", "-p", "x", "--chunk", "0"], "--chunk"),
    "unknown cache type": (["{m}", "-p", "x", "--kv", "q4"], "'q4'"),
    "bias without value": (["{m}", "-p", "x", "--logit-bias", "5"], "KEY=VALUE|ID=VALUE"),
    "bias in words": (["{m}", "-p", "x", "--logit-bias", "cat=3"], "cat=3"),
    "bias twice": (["{m}", "-p", "x", "--logit-bias", "5=1", "--logit-bias", "05=2"], "twice"),
    "NaN bias": (["{m}", "-p", "x", "--logit-bias", "5=nan"], "logit_bias"),
    "bias outside the vocabulary": (["{m}", "-p", "x", "--logit-bias", "9999=1"], "9999"),
    "negative bias token": (["{m}", "-p", "x", "--logit-bias", "-1=1"], "-1"),
    "empty stop string": (["{m}", "-p", "x", "--stop", ""], "--stop"),
    "stop string that isn't UTF-8": (["{m}", "-p", "x", "--stop", "\udcff"], "--stop"),
    "system without chat": (["{m}", "-p", "x", "--system", "y"], "--chat"),
    "unknown option": (["{m}", "-p", "x", "--speed", "9"], "--speed"),
    "option without value": (["{m}", "-p"], "specla decode --help"),
    "two models": (["{m}", "{m}", "-p", "x"], "specla decode --help"),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_bad_options(run, model: Path, tmp_path: Path, name: str) -> None:
    argv, what = OPTIONS[name]
    filled = [a.replace("{m}", str(model)).replace("{d}", str(tmp_path)) for a in argv]
    assert_refused(run("decode", *filled), what)


@pytest.mark.parametrize(
    ("argv", "what"),
    [
        (["decoed"], "decoed"),
        (["--fast"], "--fast"),
        (["inspect"], "FILE"),
        (["inspect", "{d}/none.gguf"], "none.gguf"),
        (["inspect", "{d}"], "folder"),
        (["convert"], "SOURCE_FOLDER|-o"),
        (["convert", "{d}"], "-o"),
        (["convert", "{d}", "-o", "{d}/x.gguf"], "config.json"),
        (["convert", "{d}/none", "-o", "{d}/x.gguf"], "none"),
        (["convert", "{m}", "-o", "{d}/x.gguf"], "folder"),
        (["convert", "{d}", "-o", "{m}"], "--force"),
        (["convert", "{d}", "-o", "{d}"], "folder"),
        (["convert", "{d}", "-o", "{d}/x.gguf", "--outtype", "q3"], "q3"),
        (["adapters", "ngram"], "specla adapters --help"),
        (["backends", "--jsn"], "--json"),
        (["warmup", "{d}/none.gguf"], "none.gguf"),
        (["warmup", "{d}"], "folder"),
        (["warmup", "{m}", "--backend", "abacus"], "numba, numpy"),
        (["warmup", "--threads", "0"], "--threads is 0"),
    ],
)
def test_other_commands(run, model: Path, tmp_path: Path, argv: list[str], what: str) -> None:
    filled = [a.replace("{m}", str(model)).replace("{d}", str(tmp_path)) for a in argv]
    assert_refused(run(*filled), what)
    assert list(tmp_path.iterdir()) == []


def test_standard_input_that_is_not_utf8(run, model: Path) -> None:
    for argv in ([], ["-f", "-"]):
        assert_refused(run("decode", model, *argv, stdin=b"caf\xe9"), "byte 3 (0xe9)")


def test_no_prompt_at_a_terminal(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.cli.decode.is_terminal", lambda stream: True)
    assert_refused(run("decode", model), "no prompt")


def test_an_empty_prompt_without_any_token_to_begin_with(run, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(without("tokenizer.ggml.eos_token_id"))
    assert_refused(run("decode", path, "-p", ""), "prompt is empty")


def test_chat_without_a_template(run, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(without("tokenizer.chat_template"))
    assert_refused(run("decode", path, "-p", "hi", "--chat"), "chat template")


@pytest.mark.parametrize(
    "template", ["{% for %}", "{{ raise_exception('no\nway') }}", "{{ ''.__class__ }}"]
)
def test_chat_with_a_broken_template(run, tmp_path: Path, template: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(with_key("tokenizer.chat_template", template))
    assert_refused(run("decode", path, "-p", "hi", "--chat"), "chat template")


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() == 0, reason="the superuser may read every file"
)
def test_unreadable_files(run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(GOOD)
    path.chmod(0)
    assert_refused(run("decode", path, "-p", "x"), "ermission")
    assert_refused(run("decode", model, "-f", path), "ermission")


def test_links_in_a_circle(run, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "round"
    path.symlink_to(path)
    assert_refused(run("decode", path, "-p", "x"), "round")
    assert_refused(run("decode", model, "-f", path), "round")
    assert_refused(run("inspect", path), "round")


def test_a_pipe_is_no_model(run, tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    assert_refused(run("decode", path, "-p", "x"), "regular file")


def test_an_endless_prompt(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.cli.prompt.MAX_PROMPT_BYTES", 1 << 20)
    assert_refused(run("decode", model, "-f", "/dev/zero"), "larger than 1 MiB")


def test_more_context_than_memory(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specla.cli.memory, "physical_memory", lambda: 64 << 20)
    assert_refused(run("decode", model, "-p", "x", "--ctx", "2000000"), "--ctx")
    assert run("decode", model, "-p", "x", "-n", "1", "--quiet").code == 0


def test_larger_trees_than_memory(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specla.cli.memory, "physical_memory", lambda: 4 << 20)
    assert_refused(run("decode", model, "-p", "x", "--budget", "4000"), "--budget")


def _raises(error: BaseException) -> Callable[..., Any]:
    def call(*_: object, **__: object) -> Any:
        raise error

    return call


def test_out_of_memory(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.cli.job.open_model", _raises(MemoryError("4 GiB")))
    assert_refused(run("decode", model, "-p", "x"), "not enough memory (4 GiB)")


def test_a_defect_is_one_line_with_the_way_to_more(
    run, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specla.cli.job.open_model", _raises(KeyError("a\nb")))
    result = run("decode", model, "-p", "x")
    assert result.code == 70 and result.out == ""
    assert len(result.err.splitlines()) == 1
    assert "KeyError" in result.err and "SPECLA_TRACEBACK=1" in result.err
    monkeypatch.setenv("SPECLA_TRACEBACK", "1")
    assert "Traceback" in run("decode", model, "-p", "x").err


def test_an_interrupt_while_loading(run, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specla.cli.job.open_model", _raises(KeyboardInterrupt()))
    result = run("decode", model, "-p", "x")
    assert (result.code, result.out, result.err) == (130, "", "")
