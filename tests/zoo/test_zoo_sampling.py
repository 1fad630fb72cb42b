"""The bug zoo: sampling, and what is accepted (docs/bug-zoo.md)."""

from __future__ import annotations

import numpy as np
import pytest
from support.tiny import tiny_target
from zoo.zoo_driver import (
    GREEDY,
    PROMPT,
    SAMPLED,
    Guesses,
    knowing,
    state_differs,
    truth,
)

from specla.core.proposal import Proposal, SequenceView
from specla.core.sampling import DRAFT_STREAM, TARGET_STREAM, Sampler, SamplingParams, uniform
from specla.engine import Request, Session

pytestmark = pytest.mark.usefixtures("backend_name")


def test_mlx_vlm_1188_a_draft_has_random_numbers_of_its_own() -> None:
    """mlx-vlm#1188: drafter and target shared a random number generator. A draft from the very
    distribution of the target agrees with it as often as chance says: of 8 equal tokens, 1 in 8."""
    params, row = SamplingParams(temperature=1.0, seed=5), np.zeros(8, np.float32)
    target, draft = Sampler(params), Sampler(params, stream=DRAFT_STREAM)
    agree = sum(target.choose(row, [], i) == draft.choose(row, [], i) for i in range(400))
    assert 25 < agree < 80
    assert all(uniform(5, i, TARGET_STREAM) != uniform(5, i, DRAFT_STREAM) for i in range(400))


@pytest.mark.parametrize("draws", [0, 1, 3])
def test_mlx_vlm_1188_the_text_does_not_depend_on_a_drafts_draws(draws: int) -> None:
    """The same report: whatever a draft draws, and whatever else draws from NumPy's generator, the
    sampled text is plain decoding's."""
    target = tiny_target(15, context=64, max_nodes=9)
    right = truth(target, 24, SAMPLED)

    def drawn(view: SequenceView) -> Proposal:
        np.random.default_rng().random(draws)
        np.random.random(draws)
        at = len(view.tokens)
        numbers = [uniform(7, at + i, DRAFT_STREAM) for i in range(min(draws, view.budget))]
        return Proposal.chain([int(40 * number) for number in numbers])

    with Session(target, Guesses(drawn), PROMPT) as session:
        assert [e.token for e in session.generate(Request(24, SAMPLED))] == right
        assert state_differs(session, 24, SAMPLED) == []


def test_omlx_3370_drafts_are_accepted_when_the_target_samples() -> None:
    """omlx#3370: above temperature 0 nothing was accepted. A draft that knows the sampled text is
    accepted whole; one that knows only each likeliest token, as often as that is drawn."""
    target = tiny_target(15, context=64, max_nodes=9)
    right = truth(target, 24, SAMPLED)
    with Session(target, knowing(right), PROMPT) as session:
        assert [e.token for e in session.generate(Request(24, SAMPLED, budget=7))] == right
        assert dict(session.stats.accept_lengths) == {8: 3}
    wrong = [token if i % 3 else (token + 1) % 40 for i, token in enumerate(right)]
    with Session(target, knowing(wrong), PROMPT) as session:
        assert [e.token for e in session.generate(Request(24, SAMPLED, budget=7))] == right
        # the first token is wrong, then every third one
        assert dict(session.stats.accept_lengths) == {1: 1, 3: 7, 2: 1}


@pytest.mark.parametrize("sampler", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("every", [1, 2])
def test_lattice_243_a_draft_of_one_token_is_verified(every: int, sampler: Sampler) -> None:
    """lattice#243: n-gram drafts changed the text, for the first drafted token was accepted without
    being verified, so that a draft of one token always was."""
    target = tiny_target(15, context=64, max_nodes=9)
    right = truth(target, 20, sampler)

    def one(view: SequenceView) -> Proposal:
        done = len(view.tokens) - view.prompt_length
        return Proposal.chain([(right[done] + (done % every == 0)) % 40])

    with Session(target, Guesses(one), PROMPT) as session:
        assert [e.token for e in session.generate(Request(20, sampler))] == right
        assert state_differs(session, 20, sampler) == []


@pytest.mark.parametrize("sampler", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_lucebox_one_forward_per_step_also_when_sampling(
    sampler: Sampler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """lucebox: a sampled tree cost two forward passes per step."""
    target = tiny_target(15, context=64, max_nodes=9)
    right, calls = truth(target, 24, sampler), []
    verify = target.verify
    monkeypatch.setattr(target, "verify", lambda items: calls.append(items) or verify(items))
    with Session(target, knowing(right, 1), PROMPT) as session:
        list(session.generate(Request(24, sampler, budget=8)))
        assert len(calls) == session.stats.rounds == 5
