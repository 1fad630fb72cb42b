"""The bundled model, interpreted: first tokens, logits and state are the reference's.

A row takes the interpreter seconds, so there are as few as show everything: prefill, plain tokens,
a tree of which the second branch is committed, a round without a hit, a chain.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from interpreted.needs import MARKS, need_interpreter

need_interpreter()

from interpreted.scripted import Scripted, all_wrong, chain_of_one, second_sibling  # noqa: E402
from specla.adapters.base import Adapter, create_adapter  # noqa: E402
from specla.backends.base import Backend  # noqa: E402
from specla.backends.numpy.backend import NumpyBackend  # noqa: E402
from specla.backends.triton.backend import TritonBackend  # noqa: E402
from specla.check import MismatchError, Trace, compare, plain_decode  # noqa: E402
from specla.core.sampling import Sampler, SamplingParams  # noqa: E402
from specla.engine import Request, Session  # noqa: E402
from specla.models.load import ModelFile, bundled_model, open_model  # noqa: E402
from specla.models.qwen35.target import TargetOptions  # noqa: E402

pytestmark = MARKS

PROMPT = "Once upon a time"
OPTIONS = TargetOptions(context=64, max_nodes=9, chunk=64, poison=True)
SAMPLER = Sampler(SamplingParams())
ROUNDS = [second_sibling, all_wrong, chain_of_one]
ACCEPTED = [1, 2, 3]
"""How many tokens they commit, bonus tokens included, the fewest first."""


@cache
def model() -> ModelFile:
    return open_model(bundled_model())


@cache
def prompt() -> tuple[int, ...]:
    return tuple(model().tokenizer.encode(PROMPT, parse_special=False))


@cache
def reference(count: int) -> tuple[Trace, dict[str, np.ndarray]]:
    return plain_decode(model().target(NumpyBackend(), OPTIONS), prompt(), count, SAMPLER)


def scripted() -> Adapter:
    return Scripted(reference(sum(ACCEPTED))[0].tokens, 2000, ROUNDS)


def decoded(
    backend: Backend, adapter: Adapter, count: int
) -> tuple[Trace, dict[str, np.ndarray], list[int]]:
    """What a session says, its state, and how many tokens rounds committed, ascending."""
    target, trace = model().target(backend, OPTIONS), Trace()
    with Session(target, adapter, list(prompt())) as session:
        request = Request(count, SAMPLER, budget=8, on_logits=trace.on_logits)
        trace.tokens = [event.token for event in session.generate(request)]
        lengths = sorted(session.stats.accept_lengths.elements())
        return trace, target.state_arrays(session.sequence), lengths


def same(trace: Trace, state: dict[str, np.ndarray], count: int) -> int:
    plain, wanted = reference(count)
    return compare(trace, plain, state, wanted, len(prompt()))


def test_plain_decoding() -> None:
    trace, state, lengths = decoded(TritonBackend(), create_adapter("none"), 2)
    assert lengths == [1, 1]
    assert same(trace, state, 2) == 2


def test_trees_with_a_second_sibling_and_a_round_without_a_hit() -> None:
    trace, state, lengths = decoded(TritonBackend(), scripted(), sum(ACCEPTED))
    assert lengths == ACCEPTED
    assert same(trace, state, sum(ACCEPTED)) == sum(ACCEPTED)


def test_the_scripts_do_on_the_reference_what_they_say() -> None:
    trace, state, lengths = decoded(NumpyBackend(), scripted(), sum(ACCEPTED))
    assert lengths == ACCEPTED
    assert same(trace, state, sum(ACCEPTED)) == sum(ACCEPTED)


def test_a_byte_that_differs_is_seen() -> None:
    """The comparison itself: one bit of the state, or of one logit."""
    count = sum(ACCEPTED)
    trace, state, _ = decoded(NumpyBackend(), scripted(), count)
    for array in state.values():
        changed = array.copy()
        changed.reshape(-1).view(np.uint8)[0] ^= 1
        others = {name: changed if kept is array else kept for name, kept in state.items()}
        with pytest.raises(MismatchError, match="the committed state differs"):
            same(trace, others, count)
    position = len(prompt()) + 1
    digests = trace.digests | {position: bytes(16)}
    with pytest.raises(MismatchError, match=f"logits differ at position {position}"):
        same(Trace(trace.tokens, digests), state, count)
