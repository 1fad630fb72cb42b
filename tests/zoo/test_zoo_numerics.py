"""The bug zoo: widths, rounding, ties (docs/bug-zoo.md). Bytes, never a tolerance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.arrays import filled, quantised_rows
from support.chosen import chosen_backend, reference
from support.oracle import SequentialGdn
from support.setup import plain_decoder
from support.tiny import source, tiny_target
from zoo.zoo_driver import (
    GREEDY,
    PROMPT,
    Guesses,
    opened,
    state_differs,
    tokens_of,
    truth,
    wrong_rows,
)

from specla.backends.pools import RecurrentShape
from specla.core.plan import Place, build_plan, map_arrays
from specla.core.proposal import Proposal, SequenceView
from specla.core.sampling.ranking import best
from specla.core.topology import Forest, Tree
from specla.engine import Request, Session
from specla.fuzz.plain import difference, same

pytestmark = pytest.mark.usefixtures("backend_name")

WIDEST = 20


@pytest.mark.parametrize("candidates", [1, 8])
def test_sglang_35150_every_draft_is_rejected(candidates: int) -> None:
    """sglang#35150, #35541: with every draft rejected and only the target's own choices committed,
    the text still left plain decoding's: beta was rounded in one path only, and verify attended
    with another kernel than decode."""
    target = tiny_target(9, context=64, max_nodes=9)
    right = truth(target, 40)

    def wrong(view: SequenceView) -> Proposal:
        done = len(view.tokens) - view.prompt_length
        count = min(candidates, view.budget)
        tokens = [(right[min(done + i, 39)] + 1) % 40 for i in range(count)]
        return Proposal.chain(tokens)

    with Session(target, Guesses(wrong), PROMPT) as session:
        assert [e.token for e in session.generate(Request(40, GREEDY))] == right
        assert session.stats.rounds == 40 and session.stats.rows > 40
        assert state_differs(session, 40) == []


def _sweep(kind: str, pattern: str, prompt: tuple[int, ...]) -> None:
    options: dict[str, Any] = {"kind": kind, "pattern": pattern, "max_nodes": WIDEST}
    target, plain = tiny_target(9, **options), plain_decoder(9, **options)
    sequence, chain = opened(target, prompt), tokens_of(9, WIDEST)
    for width in range(1, WIDEST + 1):
        tree = Tree.chain(chain[:width])
        verified = target.verify([(sequence, tree)])
        assert wrong_rows(target, verified, [(prompt, tree)], plain) == [], width


def test_llama_cpp_23335_any_width_gives_the_same_rows() -> None:
    """llama.cpp#23335: drafts of three and more tokens changed greedy text, for the kernel is
    chosen by the batch's size."""
    _sweep("F32", "gag", PROMPT)


def test_mlxcel_1201_the_whole_model_at_every_width() -> None:
    """mlxcel#1201, #1189: one token flipped, each time the same, for products of several rows round
    differently, and a probe of one layer was too weak to see it. The whole model, quantised."""
    _sweep("Q8_0", "gaga", PROMPT)


def test_lucebox_attention_at_every_width() -> None:
    """lucebox: in full-attention layers logits changed with the width, so that a near tie could
    fall the other way. A prefix across the end of a block of attention's sums."""
    _sweep("F32", "aa", tokens_of(10, 60))


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0", "F32"])
def test_atlas_435_products_at_production_widths(kind: str) -> None:
    """Atlas#435, #604: a difference of 4 nats near token 250, for the verify's product added in
    pairs; a test by cosine passed with errors of 0.125. Rows together against each row alone."""
    rng = np.random.default_rng(11)
    weight = rng.standard_normal((48, 2048)).astype(np.float32) / np.float32(45)
    x = rng.standard_normal((6, 2048)).astype(np.float32)
    _same_alone_and_together(source("w", weight, kind), x)


@pytest.mark.parametrize("kind", ["Q8_0", "F32"])
@pytest.mark.parametrize("rows", [2, 3, 6, 8])
def test_tyloquant_6_products_of_realistic_activations(rows: int, kind: str) -> None:
    """TyloQuant#6: degenerate text at two to six rows only, for a grouped product was unfaithful at
    real magnitudes. Activations with the outliers that models have."""
    rng = np.random.default_rng(12)
    x = rng.standard_normal((rows, 256)) * np.exp(rng.normal(0, 1.5, (rows, 256)))
    x[:, rng.integers(0, 256, 4)] *= 400.0
    weight = rng.standard_normal((40, 256)).astype(np.float32)
    _same_alone_and_together(source("w", weight, kind), x.astype(np.float32))


def _product(backend: Any, matrix: Any, x: np.ndarray) -> np.ndarray:
    weight = backend.load(matrix)
    out = backend.upload(filled(len(x), matrix.rows))
    if weight.quantised:
        rows = quantised_rows(backend, x)
        backend.quantise(backend.upload(x), rows)
        backend.linear_quantised(rows, weight, out)
    else:
        backend.linear_float(backend.upload(x), weight, out)
    return np.asarray(backend.download(out))


def _same_alone_and_together(matrix: Any, x: np.ndarray) -> None:
    together = _product(chosen_backend(), matrix, x)
    for i in range(len(x)):
        alone = _product(chosen_backend(), matrix, x[i : i + 1])
        assert same(together[i : i + 1], alone), i
        assert same(alone, _product(reference(), matrix, x[i : i + 1])), i


def test_atlas_604_the_recurrence_at_production_head_sizes() -> None:
    """The same reports, for the recurrence: heads of 128 x 128, a tree and what is folded after it,
    against an oracle that knows no trees and shares no code."""
    backend, rng = chosen_backend(), np.random.default_rng(13)
    shape = RecurrentShape(1, 1, 6, 1, 2, 128, 128, 4)
    pool = backend.recurrent_pool(shape)
    start = (0.1 * rng.standard_normal((2, 128, 128))).astype(np.float32)
    backend.upload(start[None, None], into=pool.state)
    tree = Tree.build(range(4), [-1, 0, 0, 2])
    plan = map_arrays(
        build_plan(Forest((tree,)), [Place(0, 0, 0, (0,), (0,))]),
        lambda _name, array: backend.upload(array),
    )
    k = rng.standard_normal((4, 1, 128))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    q = rng.standard_normal((4, 1, 128)) / 11.0
    v, beta = rng.standard_normal((4, 2, 128)) / 2, rng.uniform(0.1, 0.9, (4, 2))
    decay = np.exp(-rng.uniform(0.05, 1.55, (4, 2)))
    inputs = [array.astype(np.float32) for array in (q, k, v, decay, beta)]
    out = backend.upload(filled(4, 2, 128))
    backend.gdn_verify(*(backend.upload(array) for array in inputs), pool, 0, plan, out)
    found, deltas = backend.download(out), backend.download(pool.delta)[0, 1, 0]
    states: dict[int, SequentialGdn] = {-1: SequentialGdn(start, np.zeros((3, 1), np.float32))}
    for node in range(4):
        states[node] = states[tree.parents[node]].copy()
        wanted, delta = states[node].step(*(array[node] for array in inputs))
        assert same(found[node], wanted) and same(deltas[node], delta), node
    fold = build_plan(Forest((Tree.lone(0),)), [Place(0, 2, 1, (2,), (0,))])
    backend.fold_state(pool, 0, map_arrays(fold, lambda _name, array: backend.upload(array)))
    assert same(backend.download(pool.state)[0, 0], states[1].state)


@pytest.mark.parametrize("k", [1, 2, 3, 9])
@pytest.mark.parametrize("how", ["prefill", "verify"])
def test_transformers_45513_k_tokens_in_one_forward_are_k_forwards(how: str, k: int) -> None:
    """transformers#45513: a cached forward of several tokens dropped the state, for a guard that
    asked for a sequence length of 1 had been copied across nine models."""
    target, plain = tiny_target(9, context=64), plain_decoder(9)
    sequence, tokens = opened(target), PROMPT
    for start in (20, 30):
        piece = tokens_of(start + k, k)
        if how == "prefill":
            verified = target.prefill([(sequence, piece)], logits=True)
            assert verified is not None
        else:
            verified = target.verify([(sequence, Tree.chain(piece))])
        chain = Tree.chain(piece)
        assert wrong_rows(target, verified, [(tokens, chain)], plain) == []
        if how == "verify":
            target.commit(sequence, tuple(range(k)))
        tokens += piece
    assert difference(target.state_arrays(sequence), plain.after(tokens).arrays) == ""


@pytest.mark.parametrize("rows", [1, 2, 7])
def test_vllm_42960_exact_ties_go_to_the_lowest_token(rows: int) -> None:
    """vllm#42960: two tokens of exactly equal log-probability, of which different paths chose
    different ones."""
    backend, rng = chosen_backend(), np.random.default_rng(14)
    logits = rng.integers(-2, 3, (rows, 300)).astype(np.float32)
    logits[:, ::7] = np.where(rng.random((rows, 43)) < 0.5, -0.0, 0.0)
    device = backend.upload(logits)
    out = backend.upload(filled(rows, dtype="int32"))
    backend.argmax(device, out)
    values, ids = backend.upload(filled(rows, 9)), backend.upload(filled(rows, 9, dtype="int32"))
    backend.top_k(device, 9, values, ids)
    for i, row in enumerate(logits):
        ranked = sorted(range(300), key=lambda token, row=row: (-row[token], token))
        assert int(backend.download(out)[i]) == ranked[0] == best(row)
        assert backend.download(ids)[i].tolist() == ranked[:9]
