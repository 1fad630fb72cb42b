"""Every token that llama.cpp drafted in every recorded round, from our own target's features.

Cases, fields and conventions are explained in the golden files themselves.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.chosen import CPU_BACKENDS, chosen_backend, computing_on
from support.drafters import bound, view_of

from specla.models.dflash.chain import confidences, confident_prefix, markov_chain
from specla.models.dflash.load import open_drafter
from specla.models.load import open_model
from specla.models.qwen35.target import Qwen35Target, TargetOptions

CASES = (
    "a-dflash-full",
    "a-dspark",
    "b-dflash-fit",
    "b-dflash-full",
    "b-dflash-full-n4",
    "b-dflash-swa",
    "b-dspark",
    "b-dspark-fit",
    "b-dspark-noconf",
    "b-dspark-pmin",
)
FEW = {"numpy": 2}
"""Prompts, and rounds of each, that a slow backend makes; all where none is named."""
CHUNK = 64

_targets: dict[tuple[str, str], Qwen35Target] = {}


def _target(folder: Path, model: str, features: tuple[int, ...]) -> Qwen35Target:
    """Both drafters of a model read the same layers, so its target is loaded once."""
    key = (chosen_backend().name, model)
    if key not in _targets:
        options = TargetOptions(context=256, kv="f32", features=features, max_nodes=16, chunk=CHUNK)
        _targets[key] = open_model(folder / "golden" / f"{model}-f32.gguf").target(
            chosen_backend(), options
        )
    return _targets[key]


@pytest.mark.parametrize("backend", CPU_BACKENDS[::-1])
@pytest.mark.parametrize("case", CASES)
def test_golden_case(shared_data: Path, case: str, backend: str) -> None:
    golden = json.loads((shared_data / "golden_draft" / f"{case}.json").read_text())
    path = shared_data / "golden_draft" / golden["draft_gguf"]
    with computing_on(backend):
        target = _target(shared_data, golden["target"], open_drafter(path).layers)
        drafter = bound(path, target, block=golden["noise_block_tokens"])
        assert drafter.first == golden["first_drafted_row"] and drafter.depth == golden["n_max"]
        drafted = 0
        few = FEW.get(backend)
        for key, prompt in enumerate(golden["prompts"][:few]):
            drafted += _rounds(target, drafter, golden, prompt, key, few)
        assert backend in FEW or drafted == golden["drafted"]


def _rounds(target: Any, drafter: Any, golden: Any, prompt: Any, key: int, most: int | None) -> int:
    """Make the rounds of one prompt; how many tokens were drafted."""
    sequence, tokens, drafted = target.open(), prompt["tokens"], 0
    try:
        for number, wanted in enumerate(prompt["rounds"][:most]):
            where = f"{golden['case']}, {prompt['name']}, round {number}"
            while sequence.length < wanted["pos"]:
                upto = min(sequence.length + CHUNK, wanted["pos"])
                target.prefill([(sequence, tokens[sequence.length : upto])])
            view = view_of(target, sequence, tokens[: wanted["pos"] + 1], key)
            assert view.root == wanted["root"], where
            draft = drafter.draft(view, golden["n_max"], 10)
            chain, log_probs = markov_chain(drafter, draft, golden["n_max"])
            kept = confident_prefix(drafter, draft, chain, golden["p_min"])
            assert chain[:kept] == wanted["draft"], where
            _check_numbers(drafter, draft, chain, log_probs, wanted, where)
            drafted += kept
    finally:
        target.close(sequence)
        drafter.close(key)
    return drafted


def _check_numbers(
    drafter: Any, draft: Any, chain: list[int], log_probs: list[float], wanted: Any, where: str
) -> None:
    first = drafter.first
    # whole softmax: of the corrected logits where there is a Markov head, as they are recorded
    wanted_log = np.log(wanted["row_top1_p"][first:])
    np.testing.assert_allclose(log_probs, wanted_log, atol=2e-4, err_msg=where)
    measured = confidences(drafter, draft, chain)
    if drafter.confidence is not None:
        np.testing.assert_allclose(measured, wanted["row_confidence"], atol=1e-4, err_msg=where)
    elif drafter.markov is None:
        top_ten = wanted["row_top1_p_top10"][first:]
        np.testing.assert_allclose(measured, top_ten, atol=1e-4, err_msg=where)


def test_probability_cut(shared_data: Path) -> None:
    """DFlash stops before the first token whose share of the ten largest logits is too small: the
    recorded shares say where, for any threshold."""
    golden = json.loads((shared_data / "golden_draft" / "b-dflash-fit.json").read_text())
    path = shared_data / "golden_draft" / golden["draft_gguf"]
    target = _target(shared_data, golden["target"], open_drafter(path).layers)
    drafter = bound(path, target)
    prompt = golden["prompts"][0]
    sequence = target.open()
    lengths = set()
    for wanted in prompt["rounds"][:4]:
        target.prefill([(sequence, prompt["tokens"][sequence.length : wanted["pos"]])])
        draft = drafter.draft(
            view_of(target, sequence, prompt["tokens"][: wanted["pos"] + 1]), 7, 10
        )
        chain, _ = markov_chain(drafter, draft, 7)
        shares = wanted["row_top1_p_top10"][1:]
        for least in (0.2, 0.3, 0.35, 0.5, 0.9):
            length = next((i for i, p in enumerate(shares) if p < least), 7)
            lengths.add(length)
            assert confident_prefix(drafter, draft, chain, least) == length
    assert len(lengths) > 2
    target.close(sequence)
