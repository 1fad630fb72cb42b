"""What the command must print for the tiny model, found without it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from models.tokenizer.tokenizer_helpers import TINY_SPECIAL, tiny_metadata

from specla.backends import create_backend
from specla.check import plain_decode
from specla.core.sampling import Sampler, SamplingParams
from specla.models.load import open_model
from specla.models.qwen35.target import TargetOptions
from specla.models.tokenizer.bytelevel import letters_to_bytes

PROMPT = "hello world"
TOKENS: list[str] = tiny_metadata()["tokenizer.ggml.tokens"]  # type: ignore[assignment]
END = TOKENS.index("<|end|>")


def token_text(ids: list[int]) -> str:
    shown = [TOKENS[i] for i in ids if TOKENS[i] not in TINY_SPECIAL]
    return b"".join(map(letters_to_bytes, shown)).decode("utf-8", "replace")


def plainly(model: Path, prompt: list[int], n: int, **sampling: Any) -> list[int]:
    target = open_model(model).target(create_backend("numpy"), TargetOptions(context=256))
    return plain_decode(target, prompt, n, Sampler(SamplingParams(**sampling)))[0].tokens


def report(run, *argv: object) -> dict[str, Any]:
    result = run("decode", *argv, "--json", "--quiet")
    assert (result.code, result.err) == (0, "")
    assert result.out.count("\n") == 1
    return json.loads(result.out)


PROMPT_IDS = [TOKENS.index("hello"), TOKENS.index("Ġworld")]
N = 24
