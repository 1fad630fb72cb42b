"""llama.cpp as an oracle, through the `xllamacpp` wheel."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest


def _post(
    path: Path,
    endpoint: str,
    body: dict[str, object],
    draft: tuple[Path, str] | None = None,
) -> dict[str, Any]:
    """One request to a server that lives as long as it takes. draft: a drafter and its kind."""
    xllamacpp = pytest.importorskip("xllamacpp")
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(path)
    parameters.n_ctx = 256
    parameters.n_parallel = 1
    parameters.cpuparams.n_threads = 1
    parameters.warmup = False
    parameters.cache_type_k = parameters.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    parameters.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    parameters.fit_params = False
    if draft is not None:
        parameters.speculative.draft.mparams.path = str(draft[0])
        kind = f"COMMON_SPECULATIVE_TYPE_DRAFT_{draft[1]}"
        parameters.speculative.types = [getattr(xllamacpp.common_speculative_type, kind)]
    server = xllamacpp.Server(parameters)
    # its own HTTP endpoint: the Python call returns text, not token ids
    request = urllib.request.Request(
        f"{server.listening_address}/{endpoint}",
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        result: dict[str, Any] = json.load(answer)
    return result


def llama_greedy(path: Path, ids: list[int], count: int) -> list[int]:
    """Greedy continuation of a prompt, as token ids."""
    return list(_post(path, "completion", _greedy(ids, count))["tokens"])


def llama_drafted(
    path: Path, draft: Path, kind: str, ids: list[int], count: int
) -> tuple[list[int], int, int]:
    """(greedy continuation, tokens drafted, tokens accepted). kind: "DFLASH" or "DSPARK"."""
    answer = _post(path, "completion", _greedy(ids, count), (draft, kind))
    timings = answer["timings"]
    return list(answer["tokens"]), timings["draft_n"], timings["draft_n_accepted"]


def _greedy(ids: list[int], count: int) -> dict[str, object]:
    return {
        "prompt": ids,
        "n_predict": count,
        "temperature": 0.0,
        "return_tokens": True,
        "ignore_eos": True,
    }


def llama_tokens(path: Path, text: str) -> list[int]:
    """llama.cpp's tokenisation of a text."""
    return list(_post(path, "tokenize", {"content": text, "add_special": False})["tokens"])
