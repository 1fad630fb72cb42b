"""llama.cpp loads what the converter writes and drafts with it, heads and all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from models.convert import dflash_build as draft
from models.convert.draft_gguf_to_hf import write_hf
from support.llama_cpp import llama_drafted

from specla.models.convert import convert_checkpoint
from specla.models.gguf import GgufFile

pytestmark = pytest.mark.oracle
# the golden target "b"
WIDTH, VOCAB = 256, 512
YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "attention_factor": 1.1,
        "original_max_position_embeddings": 64}  # fmt: skip


@pytest.fixture(autouse=True)
def sizes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(draft, "WIDTH", WIDTH)
    monkeypatch.setattr(draft, "VOCAB", VOCAB)
    yield


def prompt_and_continuation(shared_data: Path) -> tuple[list[int], list[int]]:
    greedy = [int(token) for token in np.load(shared_data / "golden" / "b.golden.npz")["greedy"]]
    return greedy[:16], greedy[16:]


def check(shared_data: Path, path: Path, kind: str) -> int:
    """Number of accepted tokens, after checks that it drafted and changed nothing."""
    prompt, wanted = prompt_and_continuation(shared_data)
    target = shared_data / "golden" / "b-f32.gguf"
    tokens, drafted, accepted = llama_drafted(target, path, kind, prompt, len(wanted))
    assert tokens == wanted and drafted > 0
    return accepted


SMALL = 64


@pytest.mark.parametrize("outtype", ["f32", "q8_0"])
@pytest.mark.parametrize("case", ["dflash", "embedding", "windowed", "yarn", "dspark", "map",
                                  "speculators", "dflash2"])  # fmt: skip
def test_it_loads_and_drafts(shared_data: Path, tmp_path: Path, case: str, outtype: str) -> None:
    sizes: dict[str, Any] = {"hidden_size": WIDTH, "vocab_size": VOCAB}
    groups: list[dict[str, tuple[int, ...]]] = [draft.shapes()]
    table = {"embed_tokens.weight": (VOCAB, WIDTH), "lm_head.weight": (VOCAB, WIDTH)}
    c = draft.nested(**sizes)
    if case == "embedding":
        groups.append(table)
    elif case == "windowed":
        types = ["sliding_attention", "full_attention"]
        c |= {"use_sliding_window": True, "sliding_window": 8, "layer_types": types}
    elif case == "yarn":
        c |= {"rope_parameters": YARN, "is_causal": True}
    elif case == "dspark":
        c = draft.flat(**sizes)
        head = {"confidence_head.proj.weight": (1, WIDTH + draft.RANK)}
        groups += [draft.markov_shapes(VOCAB), head]
    elif case == "map":
        c |= {"draft_vocab_size": SMALL}
        groups.append({"lm_head.weight": (SMALL, WIDTH)})
    elif case == "speculators":
        c = draft.speculators(draft_vocab_size=SMALL)
        c["transformer_layer_config"] |= sizes
        groups += [draft.markov_shapes(SMALL), {"lm_head.weight": (SMALL, WIDTH)}]
    elif case == "dflash2":
        c = draft.dflash2_config(**sizes)
        groups.append(draft.dflash2_shapes())
    tensors = {name: values / 16 for name, values in draft.arrays(*groups).items()}
    if c.get("draft_vocab_size"):
        tensors["d2t"] = np.arange(SMALL, dtype=np.int64)
    target = shared_data / "golden" / "b-f32.gguf"
    gguf, _ = draft.converted(tmp_path, c, tensors, outtype, target=target)
    is_dspark = "markov_w1.weight" in gguf.tensors
    check(shared_data, gguf.path, "DSPARK" if is_dspark else "DFLASH")


@pytest.mark.parametrize("name", ["b-dflash-fit", "b-dspark-fit"])
def test_quantised_drafters_are_as_good(shared_data: Path, tmp_path: Path, name: str) -> None:
    golden = GgufFile.open(shared_data / "golden_draft" / f"{name}.gguf")
    target = shared_data / "golden" / "b-f32.gguf"
    folder = write_hf(golden, tmp_path / "hf", nested=True)
    done = convert_checkpoint(folder, tmp_path / "d.gguf", "q8_0", target=target)
    kind = "DSPARK" if "dspark" in name else "DFLASH"
    exact = check(shared_data, golden.path, kind)
    assert exact > 0 and check(shared_data, done.path, kind) >= 0.7 * exact
