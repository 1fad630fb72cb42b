"""The bug zoo: stops inside an accepted run, limits, going on afterwards (docs/bug-zoo.md)."""

from __future__ import annotations

from typing import Any

import pytest
from support.tiny import tiny_target
from zoo.zoo_driver import GREEDY, PROMPT, knowing, state_differs, truth

from specla.adapters.none import NoneAdapter
from specla.engine import Request, Session, Stop
from specla.fuzz.plain import difference
from specla.models.qwen35.target import Qwen35Target

pytestmark = pytest.mark.usefixtures("backend_name")


def a_target() -> Qwen35Target:
    return tiny_target(16, context=96, max_nodes=17)


@pytest.mark.parametrize("how", ["limit", "end of text", "stop rule"])
@pytest.mark.parametrize("n", [1, 3, 6])
@pytest.mark.parametrize("side", [0, 1])
def test_fak_12422_what_was_emitted_is_what_is_committed(side: int, n: int, how: str) -> None:
    """fak#12422: at the output limit or the end of the text the emitted prefix and the committed
    state disagreed, for the last token was counted wrongly."""
    target = a_target()
    right = truth(target, 20)
    seen: list[int] = []
    asked: dict[str, dict[str, Any]] = {
        "limit": {"max_tokens": n},
        "end of text": {"stop_ids": frozenset({right[n - 1]})},
        "stop rule": {"stop_rule": lambda token: seen.append(token) or len(seen) == n},
    }
    if how == "end of text":
        n = right.index(right[n - 1]) + 1
    with Session(target, knowing(right, side), PROMPT) as session:
        request = Request(**{"max_tokens": 12, "sampler": GREEDY, "budget": 16, **asked[how]})
        assert [event.token for event in session.generate(request)] == right[:n]
        assert state_differs(session, n) == []
        assert [e.token for e in session.generate(Request(6, GREEDY))] == right[n : n + 6]
        assert state_differs(session, n + 6) == []


@pytest.mark.parametrize("n", [1, 3, 5])
def test_lucebox_the_state_is_never_ahead_of_the_position(n: int) -> None:
    """lucebox: the chain's whole accepted prefix went into the recurrent state before the end of
    the text was found in it, while the position counted only what was emitted."""
    target = a_target()
    right = truth(target, 20)
    n = right.index(right[n]) + 1
    with Session(target, knowing(right), PROMPT) as session:
        request = Request(16, GREEDY, stop_ids=frozenset({right[n - 1]}), budget=16)
        events = list(session.generate(request))
        assert len(events) == n and events[-1].stop is Stop.END_OF_TEXT
        assert session.sequence.length == len(PROMPT) + n - 1
        saved = target.snapshot(session.sequence)
        copy = target.open()
        target.restore(copy, saved)
        assert state_differs(session, n) == []
        found = target.state_arrays(session.sequence)
        assert difference(target.state_arrays(copy), found) == ""


@pytest.mark.parametrize("n", [1, 4, 7])
def test_lucebox_forced_closing_tokens_advance_the_position_once(n: int) -> None:
    """lucebox: when a budget forced a close, the position had been advanced by the emitted count
    already, and the replay of the closing tokens advanced it again."""
    target, closing = a_target(), [30, 31, 32]
    right = truth(target, 20)
    with Session(target, knowing(right), PROMPT) as session:
        list(session.generate(Request(n, GREEDY, budget=16)))
        session.extend(closing)
        assert session.sequence.length == len(PROMPT) + n + len(closing) - 1
        assert list(session.tokens) == [*PROMPT, *right[:n], *closing]
        after = [e.token for e in session.generate(Request(5, GREEDY))]
        found = target.state_arrays(session.sequence)
    with Session(target, NoneAdapter(), [*PROMPT, *right[:n], *closing]) as session:
        assert [e.token for e in session.generate(Request(5, GREEDY))] == after
        assert difference(found, target.state_arrays(session.sequence)) == ""


@pytest.mark.parametrize("n", [1, 2, 5])
def test_lucebox_at_the_limit_no_choice_is_wasted_or_lost(n: int) -> None:
    """lucebox: at the end of the budget a bonus token that was decided already was dropped: the
    count was right and the work wasted. Here nothing is verified that can't be emitted, and the
    last token emitted is the next root."""
    target = a_target()
    right = truth(target, 20)
    with Session(target, knowing(right), PROMPT) as session:
        list(session.generate(Request(n, GREEDY, budget=16)))
        assert session.stats.rows == n and session.stats.rounds == 1
        assert list(session.tokens)[-1] == right[n - 1]
        assert [e.token for e in session.generate(Request(1, GREEDY))] == [right[n]]
