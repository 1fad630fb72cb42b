"""The bug zoo: recurrent state after an acceptance, a rejection, a rollback (docs/bug-zoo.md)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.chosen import chosen_backend
from support.setup import make_driver, plain_decoder
from support.tiny import tiny_target, tiny_weights
from zoo.zoo_driver import (
    GREEDY,
    PROMPT,
    knowing,
    opened,
    play,
    started,
    state_differs,
    truth,
    wrong_rows,
)

from specla.check import MismatchError, Trace, compare, plain_decode
from specla.core.topology import Tree
from specla.engine import Request, Session
from specla.fuzz.plain import difference, same
from specla.models.draft_target import DraftTarget
from specla.models.qwen35.target import Qwen35Target, TargetOptions
from specla.verification import ReplayVerifier, TreeVerifier

pytestmark = pytest.mark.usefixtures("backend_name")

CHAIN = Tree.chain([9, 8, 7, 6, 5, 4])
TREE = Tree.build([9, 8, 7, 6, 5, 4], [-1, 0, 0, 2, 2, 4])


@pytest.mark.parametrize("after", ["a step without drafts", "a flush", "a prefill"])
@pytest.mark.parametrize("accepted", [2, 6])
def test_vllm_39273_a_step_without_drafts_after_an_acceptance(accepted: int, after: str) -> None:
    """vllm#39273: with n-gram drafts tokens were lost, for the accepted state lay in slot
    accepted - 1 and a following step without drafts read slot 0."""
    driver = make_driver(3)
    text = started(driver)
    for _ in range(2):
        play(driver, text, CHAIN, range(accepted))
        if after == "a step without drafts":
            play(driver, text, Tree.lone(2), (0,))
        elif after == "a flush":
            driver.flush(text)
        else:
            driver.prefill([(text, (2,))])
        driver.check_state(text)
    driver.close_all()


@pytest.mark.parametrize("arrays", [("state",), ("window",), ("state", "window")])
def test_vllm_40738_state_and_window_each_by_itself(arrays: tuple[str, ...]) -> None:
    """A comment on vllm#40738: with the recurrent state put right, more runs were clean, and more
    again once the convolution's offset, which had the same bug, was too."""
    target = tiny_target(3, pattern="g")
    sequence = opened(target)
    target.verify([(sequence, CHAIN)])
    target.commit(sequence, (0, 1, 2, 3))
    target.verify([(sequence, Tree.lone(2))])
    target.commit(sequence, (0,))
    wanted = plain_decoder(3, pattern="g").after((*PROMPT, 9, 8, 7, 6, 2)).arrays
    found = target.state_arrays(sequence)
    assert [name for name in arrays if not same(found[name], wanted[name])] == []


@pytest.mark.parametrize("path", [(0, 1), (0, 2, 4, 5)])
def test_sglang_33630_right_outputs_are_no_proof_of_the_state(path: tuple[int, ...]) -> None:
    """sglang#33630: outputs were right and the state drifted, for the replay computed the gate by a
    slightly different formula."""
    plain = plain_decoder(3)
    target = tiny_target(3)
    sequence = opened(target)
    verified = target.verify([(sequence, TREE)])
    assert wrong_rows(target, verified, [(PROMPT, TREE)], plain) == []
    target.commit(sequence, path)
    tokens = (*PROMPT, *(TREE.tokens[node] for node in path))
    assert difference(target.state_arrays(sequence), plain.after(tokens).arrays) == ""


@pytest.mark.parametrize("how", ["discard", "root alone"])
@pytest.mark.parametrize("tree", [CHAIN, TREE], ids=["chain", "tree"])
def test_llama_cpp_26695_everything_of_the_last_decode_is_rejected(tree: Tree, how: str) -> None:
    """llama.cpp#26695: taking back the whole of the last decode reported success and left the state
    as it was."""
    driver = make_driver(3)
    text = started(driver)
    for _ in range(3):
        driver.verify([(text, tree)])
        if how == "discard":
            driver.discard(text)
        else:
            driver.commit(text, (0,))
        driver.check_state(text)
    play(driver, text, TREE, (0, 2))
    driver.check_state(text)
    driver.close_all()


@pytest.mark.parametrize("side", [0, 2])
def test_rmlx_436_a_replay_across_both_kinds_of_layers(side: int) -> None:
    """rMLX#436: a replay ran through a scratch KV stack, so that full-attention layers saw only the
    tokens that were kept."""
    target = tiny_target(3, pattern="gaga", context=64, max_nodes=33)
    right = truth(target, 20)
    with Session(target, knowing(right, side), PROMPT, verifier=ReplayVerifier) as session:
        found = [e.token for e in session.generate(Request(16, GREEDY, budget=9))]
        assert session.stats.mean_accept_length > 2
        assert found == right[:16]
        assert state_differs(session, 16) == []


def test_turboquant_345_a_wrong_replay() -> None:
    """TheTom/llama-cpp-turboquant#345: a wrong replay made the model loop, the loop was easy to
    draft, and acceptance and speed rose: so a run is believed for its bytes."""
    target = tiny_target(3, context=64, max_nodes=9)
    right = truth(target, 20)
    wrong = knowing([(token + (i % 5 == 2)) % 40 for i, token in enumerate(right)], 1)
    with Session(target, wrong, PROMPT, verifier=ReplayVerifier) as session:
        assert [e.token for e in session.generate(Request(12, GREEDY, budget=8))] == right[:12]
        assert state_differs(session, 12) == []


def test_turboquant_345_acceptance_is_no_evidence() -> None:
    """The same report: text and acceptance as good as can be, one bit of the state wrong, and the
    check must say so."""
    target = tiny_target(3, context=64, max_nodes=9)
    right, trace = truth(target, 12), Trace()
    with Session(target, knowing(right), PROMPT, verifier=TreeVerifier) as session:
        request = Request(12, GREEDY, budget=8, on_logits=trace.on_logits)
        trace.tokens = [e.token for e in session.generate(request)]
        assert session.stats.rounds == 2, "everything was accepted"
        found = target.state_arrays(session.sequence)
    plain, state = plain_decode(target, PROMPT, 12, GREEDY)
    assert compare(trace, plain, found, state, len(PROMPT)) == 12
    for name in found:
        wrong = {**found, name: found[name].copy()}
        wrong[name].reshape(-1).view(np.uint8)[0] ^= 1
        with pytest.raises(MismatchError, match=name):
            compare(trace, plain, wrong, state, len(PROMPT))


@pytest.mark.parametrize("into", ["itself", "another"])
def test_imp_1503_a_snapshot_holds_every_layer(into: str) -> None:
    """imp#1503: garbage after the first full rejection, for the snapshot's memory was never written
    for the recurrent layers. Here all memory of the slot is poison before it is restored."""
    driver = make_driver(3, pattern="ggag", features=(0, 3))
    text = started(driver)
    play(driver, text, TREE, (0, 2, 4))
    saved = driver.snapshot(text)
    assert saved is not None
    driver.verify([(text, CHAIN)])
    if into == "another":
        other = driver.open()
        assert other is not None
        text = other
    driver.target.store._poison_slot(text.sequence.slot)
    driver.restore(text, saved)
    driver.check_state(text)
    play(driver, text, CHAIN, (0, 1))
    driver.check_state(text)
    driver.close_all()


class _DraftFile:
    """A draft model that needs no file."""

    def __init__(self, seed: int) -> None:
        self._weights = tiny_weights(seed)
        self.config = self._weights.config

    def target(self, backend: Any, options: TargetOptions) -> Qwen35Target:
        return Qwen35Target(self._weights, backend, options)


def _draft() -> DraftTarget:
    options = TargetOptions(context=64, chunk=16, slots=1, poison=True)
    return DraftTarget(_DraftFile(5), chosen_backend(), options, 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("accepted", [0, 1, 3])
def test_mlx_lm_1446_a_hybrid_draft_model_is_rolled_back_too(accepted: int) -> None:
    """mlx-lm#1446, #1486: trimming a cache has no inverse in a recurrence, so hybrid caches were
    corrupted or refused, those of hybrid draft models as well."""
    draft, tokens = _draft(), list(PROMPT)
    for bonus in (7, 8, 9):
        guesses = list(draft.draft(1, tokens, 4))
        tokens += [guess.token for guess in guesses[:accepted]] + [bonus]
    found = list(draft.draft(1, tokens, 4))
    fresh = _draft()
    assert found == list(fresh.draft(1, tokens, 4))
    states = [d.target.state_arrays(d._texts[1].state) for d in (draft, fresh)]
    assert difference(*states) == ""
