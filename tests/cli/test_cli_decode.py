"""`specla decode` in this process: what is written, reported and checked."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli.cli_expected import END, PROMPT, PROMPT_IDS, N, plainly, report, token_text

from specla.cli.summary import summary_rows


@pytest.mark.parametrize("adapter", ["none", "ngram"])
def test_the_text_is_that_of_plain_decoding(run, model: Path, adapter: str) -> None:
    ids = plainly(model, PROMPT_IDS, N)
    result = run("decode", model, "-p", PROMPT, "-n", N, "--adapter", adapter, "--quiet")
    assert (result.code, result.out, result.err) == (0, token_text(ids), "")


def test_the_report(run, model: Path) -> None:
    ids = plainly(model, PROMPT_IDS, N, temperature=0.9, top_k=40, seed=7)
    found = report(
        run, model, "-p", PROMPT, "-n", N, "--temp", "0.9", "--top-k", 40, "--seed", 7, "--check"
    )
    assert found["prompt_tokens"] == PROMPT_IDS
    assert found["tokens"] == ids
    assert found["text"] == token_text(ids)
    assert found["stop"] == "token limit"
    assert found["check"] == {"identical": True, "positions": N}
    assert found["stats"]["emitted_tokens"] == N
    assert sum(int(k) * v for k, v in found["stats"]["accept_length_histogram"].items()) == N
    settings = found["settings"]
    assert (settings["temperature"], settings["top_k"], settings["seed"]) == (0.9, 40, 7)
    assert (settings["backend"], settings["context"], settings["kv"]) == ("numba", 256, "f16")
    assert (settings["adapter"], settings["budget"]) == ("adaptive(suffix)", 22)
    assert settings["adapter_options"]["suffix"]["min_match"] == 2
    assert isinstance(found["adapter_report"], dict)


def test_every_sampling_option_reaches_the_sampler(run, model: Path) -> None:
    sampling = {
        "temperature": 1.5, "top_k": 50, "top_p": 0.9, "min_p": 0.01, "seed": 3,
        "repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2,
        "penalty_window": 9, "logit_bias": {70: 2.5},
    }  # fmt: skip
    options = {
        "--temp": 1.5, "--top-k": 50, "--top-p": 0.9, "--min-p": 0.01, "--seed": 3,
        "--repeat-penalty": 1.3, "--frequency-penalty": 0.4, "--presence-penalty": 0.2,
        "--penalty-window": 9, "--logit-bias": "70=2.5",
    }  # fmt: skip
    argv = [word for pair in options.items() for word in pair]
    found = report(run, model, "-p", PROMPT, "-n", N, *argv, "--check")
    assert found["tokens"] == plainly(model, PROMPT_IDS, N, **sampling)
    assert found["check"]["identical"]
    shown = found["settings"]
    assert shown["repeat_penalty"] == 1.3 and shown["logit_bias"] == [[70, 2.5]]


def test_the_summary(run, model: Path) -> None:
    result = run("decode", model, "-p", PROMPT, "-n", 5, "--check", "--adapter", "none")
    assert result.code == 0
    lines = dict(line.split(": ", 1) for line in result.err.splitlines() if ": " in line)
    assert lines["adapter"] == "none, budget 22"
    assert lines["prefill"].startswith("1 token, ")
    assert lines["decode"].startswith("5 tokens in 5 rounds, ")
    assert lines["accept length"] == "1.00 on average"
    assert lines["rounds by length"] == "1:5"
    assert all(f"{phase} " in lines["time"] for phase in ("draft", "verify", "commit"))
    assert lines["stop"] == "token limit"
    assert lines["check"] == "5 tokens, their logits and the state identical to plain decoding"


def test_a_good_draft_is_accepted_and_the_text_the_same(run, model: Path, tmp_path: Path) -> None:
    plain = run("decode", model, "-p", PROMPT, "-n", 40, "--json", "--quiet").out
    recording = tmp_path / "recording.json"
    recording.write_text(plain)
    found = report(
        run, model, "-p", PROMPT, "-n", 40, "--check", "--budget", 7, "--adapter", "replay",
        "--adapter-opt", f"path={recording}", "--adapter-opt", "branch=2",
    )  # fmt: skip
    assert found["tokens"] == json.loads(plain)["tokens"]
    assert found["check"]["identical"]
    assert found["stats"]["mean_accept_length"] > 2
    options = found["settings"]["adapter_options"]["replay"]
    assert (options["path"], options["branch"], options["error"]) == (str(recording), 2, 0.0)


@pytest.mark.parametrize("length", [1, 2])
def test_a_stop_string_ends_the_text_before_it(run, model: Path, length: int) -> None:
    text = token_text(plainly(model, PROMPT_IDS, N))
    # a place whose text has not occurred before
    at = next(i for i in range(5, N) if text.find(text[i : i + length]) == i)
    stop = text[at : at + length]
    found = report(run, model, "-p", PROMPT, "-n", N, "--stop", "qqq", "--stop", stop, "--check")
    assert found["text"] == text[:at]
    assert found["stop_string"] == stop and found["stop"] == f"stop string {stop!r}"
    assert found["check"] == {"identical": True, "positions": len(found["tokens"])}
    assert len(found["tokens"]) < N


def test_the_end_of_text_token_ends_the_text_and_is_not_shown(run, model: Path) -> None:
    found = report(run, model, "-p", PROMPT, "--logit-bias", f"{END}=1e9", "--check")
    assert (found["tokens"], found["text"], found["stop"]) == ([END], "", "end of text")
    assert found["check"] == {"identical": True, "positions": 1}


def test_the_text_ends_with_the_context(run, model: Path) -> None:
    found = report(run, model, "-p", PROMPT, "--ctx", 10, "-n", 100, "--check")
    assert found["stop"] == "context is full"
    # the last token is decided, but in no state
    assert len(found["tokens"]) == 9
    assert found["check"]["identical"]


def test_no_tokens_are_a_legal_wish(run, model: Path) -> None:
    found = report(run, model, "-p", PROMPT, "-n", 0, "--check")
    assert (found["tokens"], found["text"], found["stop"]) == ([], "", "token limit")
    assert found["check"] == {"identical": True, "positions": 0}


@pytest.mark.parametrize(
    "option", ["--kv f32", "--chunk 1", "--budget 0", "--budget 1", "--backend numpy"]
)
def test_other_settings_pass_the_check(run, model: Path, option: str) -> None:
    argv = (model, "-p", PROMPT * 3, "-n", 12, "--check", "--adapter-opt", "min_match=1")
    assert report(run, *argv, *option.split())["check"] == {"identical": True, "positions": 12}


def test_a_context_beyond_the_models_is_said(run, model: Path) -> None:
    result = run("decode", model, "-p", "hello", "-n", 1, "--ctx", 5000)
    assert result.code == 0
    assert "note: --ctx 5000 is beyond the model's" in result.err
    assert "beyond" not in run("decode", model, "-p", "hello", "-n", 1).err


def test_a_speed_below_one_is_told_as_seconds_for_a_token(run, model: Path) -> None:
    found = report(run, model, "-p", PROMPT, "-n", 3)
    stats = found["stats"]
    for speed, words in ((0.04, "25.0 s/token"), (0.9999, "1.0 s/token"), (1.0, "1.0 tokens/s")):
        stats["decode_tokens_per_second"] = speed
        rows = dict(summary_rows(stats, found["settings"], "limit", 1.0))
        assert rows["decode"] == f"3 tokens in {stats['rounds']} rounds, {words}"
