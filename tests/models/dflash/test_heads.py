"""Markov, confidence and selector heads against their formulas, and the chains built with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.drafters import DraftSpec, bound, drafter_tensors, prefilled, write_drafter
from support.tiny import VOCAB, tiny_target

from specla.models.dflash import markov
from specla.models.dflash.chain import (
    best_of_row,
    confidences,
    confident_prefix,
    markov_chain,
)

TEXT = [i * 5 % (VOCAB - 1) for i in range(20)]
IDS = (7, 3, 21, 39, 4, 12, 30)


def _drafted(tmp_path: Path, spec: DraftSpec, k: int = 12) -> tuple[Any, Any, dict[str, Any], Any]:
    """Drafter, draft, tensors as float64, hidden rows."""
    target = tiny_target(features=(0, 2))
    drafter = bound(write_drafter(tmp_path / "draft.gguf", spec), target)
    draft = drafter.draft(prefilled(target, TEXT), drafter.depth, k)
    tensors = {name: np.asarray(a, np.float64) for name, a in drafter_tensors(spec).items()}
    return drafter, draft, tensors, np.array(draft.hidden, np.float64)


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("ids", [(), IDS])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_markov(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: bool, ids: tuple[int, ...], kind: str
) -> None:
    """All logits of a row and the bias of a few ids say the same, from a table kept as floats or
    decoded as it is read."""
    if not kept:
        monkeypatch.setattr(markov, "KEPT", 0)
        monkeypatch.setattr(markov, "SLAB", 96)
    spec = DraftSpec(rank=32, draft_ids=ids, kind=kind)
    drafter, draft, tensors, _ = _drafted(tmp_path, spec)
    exact = 1e-4 if kind == "F32" else 0.3
    w1, w2 = tensors["markov_w1.weight"], tensors["markov_w2.weight"]
    order = np.argsort(ids) if ids else np.arange(VOCAB)
    rows = np.sort(ids) if ids else np.arange(VOCAB)
    for row, before in ((0, draft.root), (2, 17)):
        found = drafter.markov.corrected(draft, row, before)
        assert found.shape == (VOCAB,) and found.dtype == np.float32
        logits = np.array(draft.logits)[row]
        wanted = np.full(VOCAB, -np.inf)
        wanted[rows] = logits + (w2 @ w1[before])[order]
        np.testing.assert_allclose(found, wanted, atol=exact)
        some = draft.ids[row, :3]
        bias = drafter.markov.biases(draft.ids[:, :3])
        assert bias(row, before).shape == (3,) and bias(row, before).dtype == np.float32
        at = np.searchsorted(rows, some)
        np.testing.assert_allclose(bias(row, before), found[some] - logits[at], atol=1e-4)
        np.testing.assert_allclose(bias(row, 3), (w2 @ w1[3])[order][at], atol=exact)


@pytest.mark.parametrize("anchor", [None, False])
def test_markov_chain(tmp_path: Path, anchor: bool | None) -> None:
    spec = DraftSpec(rank=6, anchor=anchor)
    drafter, draft, tensors, _ = _drafted(tmp_path, spec)
    chain, log_probs = markov_chain(drafter, draft, 4)
    logits, before = np.array(draft.logits, np.float64), draft.root
    for row, (token, log_prob) in enumerate(zip(chain, log_probs, strict=True)):
        z = logits[row] + tensors["markov_w2.weight"] @ tensors["markov_w1.weight"][before]
        assert token == int(z.argmax())
        assert abs(log_prob - (z.max() - np.log(np.exp(z).sum()))) < 1e-4
        before = token
    assert len(chain) == 4
    assert len(markov_chain(drafter, draft, 99)[0]) == draft.depth
    assert markov_chain(drafter, draft, 0) == ([], [])


def test_plain_chain(tmp_path: Path) -> None:
    drafter, draft, _, _ = _drafted(tmp_path, DraftSpec())
    chain, log_probs = markov_chain(drafter, draft, 5)
    assert chain == draft.ids[:, 0].tolist()
    logits = np.array(draft.logits, np.float64)
    wanted = logits.max(axis=1) - np.log(np.exp(logits).sum(axis=1))
    np.testing.assert_allclose(log_probs, wanted, atol=1e-5)
    # llama.cpp's measure: softmax over the ten largest logits
    best = np.sort(logits, axis=1)[:, ::-1][:, :10]
    shares = np.exp(best[:, 0]) / np.exp(best).sum(axis=1)
    np.testing.assert_allclose(confidences(drafter, draft, chain), shares, atol=1e-5)
    for least in (0.0, 0.3, 0.7, 1.0):
        length = next((i for i, p in enumerate(shares) if p < least), 5)
        assert confident_prefix(drafter, draft, chain, least) == length


@pytest.mark.parametrize("with_markov", [True, False])
def test_confidence(tmp_path: Path, with_markov: bool) -> None:
    """With the token before it, and the form that looks at the hidden state alone."""
    spec = DraftSpec(rank=5, confidence=True)
    drafter, draft, tensors, hidden = _drafted(tmp_path, spec)
    weight = tensors["conf_proj.weight"]
    if not with_markov:
        path = write_drafter(
            tmp_path / "alone.gguf",
            spec,
            tensors={"conf_proj.weight": weight[:32].astype(np.float32), "conf_proj.bias": None},
        )
        target = tiny_target(features=(0, 2))
        drafter = bound(path, target)
        draft = drafter.draft(prefilled(target, TEXT), drafter.depth, 4)
    bias = tensors["conf_proj.bias"][0] if with_markov else 0.0
    rows, before = [0, 3, 1], [draft.root, 8, 9]
    x = hidden[rows] @ weight[:32] + bias
    if with_markov:
        x = x + tensors["markov_w1.weight"][before] @ weight[32:]
    found = drafter.confidence.score(draft, rows, before)
    assert found.dtype == np.float32 and found.shape == (3,)
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-x)), atol=1e-5)
    again = drafter.confidence.score(draft, rows, before)
    assert equal(found, again)


def test_confident_prefix(tmp_path: Path) -> None:
    drafter, draft, _, _ = _drafted(tmp_path, DraftSpec(rank=5, confidence=True))
    chain, _ = markov_chain(drafter, draft, draft.depth)
    each = confidences(drafter, draft, chain)
    assert each[0] == drafter.confidence.score(draft, [0], [draft.root])[0]
    assert each[2] == drafter.confidence.score(draft, [2], [chain[1]])[0]
    for least in (0.0, *each, 1.1):
        length = next((i for i, c in enumerate(each) if c < least), len(chain))
        assert confident_prefix(drafter, draft, chain, least) == length
    assert confident_prefix(drafter, draft, [], 0.5) == 0


def test_a_new_draft_has_its_own_confidence(tmp_path: Path) -> None:
    target = tiny_target(features=(0, 2))
    spec = DraftSpec(rank=5, confidence=True)
    drafter = bound(write_drafter(tmp_path / "draft.gguf", spec), target)
    scores = []
    for text in (TEXT, TEXT[:9], TEXT):
        draft = drafter.draft(prefilled(target, text, key=len(text)), 6, 2)
        scores.append(drafter.confidence.score(draft, [0, 1], [1, 2]))
    assert equal(scores[0], scores[2]) and not equal(scores[0], scores[1])


def test_selector(tmp_path: Path) -> None:
    spec = DraftSpec(dflash2=(2, 8, 5, 4))
    drafter, draft, tensors, hidden = _drafted(tmp_path, spec)
    before = [draft.root, 3, 11]
    gates = hidden @ tensors["selector_hidden.weight"].T
    for row in (0, 2):
        ids = draft.ids[row, :4]
        pair = tensors["selector_predecessor.weight"][before] * gates[row]
        z = draft.values[row, :4] + pair @ tensors["selector_successor.weight"][ids].T
        wanted = z - np.log(np.exp(z).sum(axis=1, keepdims=True))
        found = drafter.selector.scores(draft, row, before)
        assert found.shape == (3, 4) and found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, atol=1e-4)
    chain, log_probs = markov_chain(drafter, draft, 3)
    previous = draft.root
    for row, token in enumerate(chain):
        scores = drafter.selector.scores(draft, row, [previous])[0]
        assert token == draft.ids[row, scores.argmax()] and log_probs[row] == scores.max()
        assert best_of_row(drafter, draft, row, previous) == (token, log_probs[row])
        previous = token
