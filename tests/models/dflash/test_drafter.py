"""A block against its formulas, one backend against the other, and a sequence's whole life."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.arrays import equal
from support.chosen import CPU_BACKENDS, computing_on
from support.drafters import (
    LUCEBOX,
    DraftSpec,
    bound,
    drafter_tensors,
    prefilled,
    view_of,
    write_drafter,
)
from support.plain_draft import PlainDraft
from support.tiny import VOCAB, tiny_target

from specla.core.topology import Tree
from specla.errors import SpeclaError
from specla.models.gguf.write import Value

LAYERS = (0, 2)
TEXT = [int(x) for x in np.random.default_rng(3).integers(0, VOCAB - 1, 120)]
YARN = {
    "scaling.type": Value("str", "yarn"),
    "scaling.factor": Value("f32", 4.0),
    "scaling.original_context_length": Value("u32", 64),
}
SPECS = {
    "full": DraftSpec(),
    "one layer, one KV head": DraftSpec(n_layers=1, n_kv_heads=1, head_dim=10),
    "multi-head": DraftSpec(n_heads=3, n_kv_heads=3, head_dim=6, d_ff=41),
    "causal": DraftSpec(causal=True),
    "window": DraftSpec(window=7, sliding=(True, False)),
    "window below the block": DraftSpec(window=3, sliding=(False, True), block=8),
    "window of one, causal": DraftSpec(window=1, sliding=(True, True), causal=True),
    "lucebox": DraftSpec(arch=LUCEBOX, window=9, sliding=(True, False)),
    "lucebox, all sliding": DraftSpec(arch="dflash-draft", window=2, sliding=(True, True)),
    "three features": DraftSpec(target_layers=(2, 0, 1)),
    "own matrices": DraftSpec(d_model=24, own_embedding=True, own_output=True),
    "one own matrix": DraftSpec(own_embedding=True),
    "DFlash2": DraftSpec(dflash2=(2, 8, 5, 4)),
    "DFlash2, more taps than slots": DraftSpec(dflash2=(9, 32, 3, 6), block=4),
    "reduced vocabulary": DraftSpec(draft_ids=(7, 3, 21, 39, 4, 12, 30), rank=3),
    "anchor first": DraftSpec(rank=5, confidence=True),
    "bonus anchor": DraftSpec(rank=5, anchor=False),
    "yarn": DraftSpec(rope=YARN),
    "yarn, set": DraftSpec(
        rope=YARN
        | {
            "scaling.yarn_beta_fast": Value("f32", 8.0),
            "scaling.yarn_beta_slow": Value("f32", 2.0),
            "scaling.attn_factor": Value("f32", 1.5),
        }
    ),
    "factor alone": DraftSpec(rope={"scaling.factor": Value("f32", 2.5)}),
    "linear": DraftSpec(
        rope={"scaling.type": Value("str", "linear"), "scaling.factor": Value("f32", 3.0)}
    ),
}


def _made(tmp_path: Path, spec: DraftSpec, **options: Any) -> tuple[Any, Any]:
    target = tiny_target(features=tuple(sorted(spec.target_layers)), kv="f32", **options)
    return target, bound(write_drafter(tmp_path / "draft.gguf", spec), target)


def _plain(spec: DraftSpec, target: Any, view: Any) -> tuple[np.ndarray, np.ndarray]:
    """Logits and hidden states of the rows by the formulas."""
    order = [target.options.features.index(layer) for layer in spec.target_layers]
    features = target.backend.download(view.features(0, len(view.tokens) - 1))[:, order]
    plain = PlainDraft(spec, drafter_tensors(spec), target)
    logits = plain.logits(features, view.root, spec.block)
    first = 0 if spec.rank and spec.anchor is not False else 1
    return logits[first:], plain.hidden[first:]


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("length", [1, 6, 100])
def test_block_against_formulas(tmp_path: Path, name: str, length: int) -> None:
    spec = SPECS[name]
    target, drafter = _made(tmp_path, spec)
    view = prefilled(target, TEXT[:length])
    draft = drafter.draft(view, drafter.depth, 4)
    logits, hidden = _plain(spec, target, view)
    assert draft.depth == drafter.depth == len(logits) and draft.root == view.root
    found = target.backend.download(draft.logits)
    ids = np.arange(VOCAB)
    if spec.draft_ids:
        ids = np.array(sorted(spec.draft_ids))
        logits = logits[:, np.argsort(spec.draft_ids)]
    np.testing.assert_allclose(found, logits, atol=2e-4)
    np.testing.assert_allclose(target.backend.download(draft.hidden), hidden, atol=1e-4)
    order = np.argsort(-found, axis=1, kind="stable")[:, :4]
    assert equal(draft.ids, ids[order].astype(np.int32))
    assert equal(draft.values, np.take_along_axis(found, order, axis=1))
    total = np.log(np.exp(found.astype(np.float64)).sum(axis=1))
    np.testing.assert_allclose(draft.log_total, total, atol=1e-5)


@pytest.mark.skipif(len(CPU_BACKENDS) < 2, reason="one CPU backend")
@pytest.mark.parametrize("name", ["full", "window", "causal", "lucebox", "anchor first", "DFlash2"])
@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_backends_agree(tmp_path: Path, name: str, kind: str) -> None:
    """The same bytes for rounds of several lengths, also across a page."""
    results = []
    spec = DraftSpec(**{**SPECS[name].__dict__, "kind": kind, "rank": 4})
    for backend in CPU_BACKENDS:
        with computing_on(backend):
            target, drafter = _made(tmp_path, spec)
            sequence = target.open()
            view = prefilled(target, TEXT[:57], sequence=sequence)
            got = []
            for step in (0, 1, 4, 3, 6):
                view = _committed(target, sequence, view, TEXT[len(view.tokens) :][:step])
                draft = drafter.draft(view, drafter.depth, 3)
                again = drafter.redraft(view, [3, 5], 2)
                download = target.backend.download
                got += [draft.ids, draft.values, draft.log_total, again.ids, again.values]
                got += [download(again.hidden), download(again.logits)]
            results.append(got)
    for one, other in zip(*results, strict=True):
        assert equal(one, other)


def _committed(target: Any, sequence: Any, view: Any, tokens: list[int]) -> Any:
    """The view after more tokens, by one verify and a commit, as a round does it."""
    if tokens:
        chain = [view.root, *tokens[:-1]]
        target.verify([(sequence, Tree.build(chain, range(-1, len(chain) - 1)))])
        target.commit(sequence, tuple(range(len(chain))))
    return view_of(target, sequence, [*view.tokens, *tokens], view.key)


@pytest.mark.parametrize("name", ["full", "window", "causal", "lucebox"])
def test_rounds_equal_a_fresh_context(tmp_path: Path, name: str) -> None:
    """However the context grew, it is that of the committed tokens: in rounds, by chunks, at once,
    or after drafts whose tokens were all rejected."""
    target, drafter = _made(tmp_path, SPECS[name])
    sequence = target.open()
    view = prefilled(target, TEXT[:30], 1, sequence)
    for step in (1, 3, 2, 5):
        first = drafter.draft(view, 5, 3)
        drafter.redraft(view, first.ids[:2, 0], 3)
        view = _committed(target, sequence, view, TEXT[len(view.tokens) :][:step])
    grown = drafter.draft(view, 5, 3)
    logits = target.backend.download(grown.logits)
    fresh = drafter.draft(prefilled(target, TEXT[: len(view.tokens)], key=2), 5, 3)
    assert equal(logits, target.backend.download(fresh.logits))


@pytest.mark.parametrize("name", ["full", "causal", "anchor first"])
def test_fewer_rows_are_the_first_rows(tmp_path: Path, name: str) -> None:
    target, drafter = _made(tmp_path, SPECS[name])
    view = prefilled(target, TEXT[:20])
    whole = drafter.draft(view, drafter.depth, 5)
    part = drafter.draft(view, 2, 3)
    assert part.depth == 2 and equal(part.ids, whole.ids[:2, :3])
    assert equal(part.values, whole.values[:2, :3]) and equal(part.log_total, whole.log_total[:2])
    assert drafter.draft(view, 99, 999).ids.shape == (drafter.depth, VOCAB)


def test_redraft(tmp_path: Path) -> None:
    """Without a prefix the same block; with one, what a block with those tokens gives."""
    target, drafter = _made(tmp_path, SPECS["causal"])
    view = prefilled(target, TEXT[:20])
    with pytest.raises(SpeclaError, match="redraft without a draft"):
        drafter.redraft(view, [], 2)
    whole = drafter.draft(view, 5, 4)
    same = drafter.redraft(view, [], 4)
    assert equal(same.values, whole.values) and equal(same.ids, whole.ids)
    changed = drafter.redraft(view, [9, 11], 4)
    # causal: a row sees the slots before it, and row 1 has the slot of the second token
    assert not equal(changed.values[0], whole.values[0])
    masked = drafter.redraft(view, [9, VOCAB - 1], 4)
    assert equal(masked.values[0], changed.values[0])
    assert not equal(masked.values[1], changed.values[1])
    with pytest.raises(SpeclaError, match="a prefix of 5 tokens in a block that drafts 5"):
        drafter.redraft(view, [1, 2, 3, 4, 5], 4)


def test_many_sequences_and_keys_again(tmp_path: Path) -> None:
    """More sequences than the target has slots, shrunk and replaced texts, closed keys."""
    target, drafter = _made(tmp_path, SPECS["window"], slots=7)
    views = [prefilled(target, TEXT[i : i + 12 + i], key=i) for i in range(5)]
    first = [drafter.draft(view, 5, 4).values.copy() for view in views]
    second = [drafter.draft(view, 5, 4).values for view in views]
    assert all(equal(a, b) for a, b in zip(first, second, strict=True))
    # key 0 starts over with a shorter text, key 1 with another of the same length
    shorter = prefilled(target, TEXT[40:45], key=0)
    assert equal(drafter.draft(shorter, 5, 4).values, _alone(tmp_path, TEXT[40:45]))
    other = prefilled(target, TEXT[50:63], key=1)
    assert equal(drafter.draft(other, 5, 4).values, _alone(tmp_path, TEXT[50:63]))
    drafter.close(2)
    drafter.close(2)
    assert equal(drafter.draft(views[2], 5, 4).values, first[2])
    assert equal(drafter.draft(views[3], 5, 4).values, first[3])


def _alone(tmp_path: Path, tokens: list[int]) -> np.ndarray:
    target, drafter = _made(tmp_path, SPECS["window"])
    values: np.ndarray = drafter.draft(prefilled(target, tokens), 5, 4).values
    return values


def test_more_sequences_than_slots(tmp_path: Path) -> None:
    """The drafter adds room where its share of the target's slots is used up."""
    target, drafter = _made(tmp_path, SPECS["full"], slots=2)
    sequence = prefilled(target, TEXT[:20])
    draft = drafter.draft(sequence, 5, 4).values.copy()
    for key in range(1, 6):
        view = type(sequence)(**{**sequence.__dict__, "key": key})
        assert equal(drafter.draft(view, 5, 4).values, draft)
    assert equal(drafter.draft(sequence, 5, 4).values, draft)
