"""State per sequence: who else is being decoded must not matter."""

from __future__ import annotations

from collections.abc import Sequence

from specla.testing.adapter_checks import adapter_checks
from specla.testing.stage import Life, Stage, accept_first, accept_last, play, reject_all
from specla.testing.stage import require_same as same
from specla.testing.subject import Subject

INTERLEAVED = ([0], [1], [0], [1], [1], [0], [0], [1])
RAGGED = ([0], [0, 1], [1, 0], [2, 1, 0], [0, 2], [2], [1, 2], [2, 1], [1])
"""One, two and three at once, in changing order; the third opens late, the first closes early."""


@adapter_checks.add("state.interleaved")
def interleaved_sequences(subject: Subject) -> str:
    """Two sequences that take turns behave as each alone: state is kept per view.key."""
    lives = [Life(prompt) for prompt in subject.three[:2]]
    return _compare("state.interleaved", subject, lives, INTERLEAVED)


@adapter_checks.add("state.batches")
def ragged_batches(subject: Subject) -> str:
    """Views that come together, with lengths, budgets and order of their own, get what each would
    get alone; sequences open late and close early."""
    one, two, three = subject.three
    lives = [
        Life(one, (7, 22, 1), (12, 3), (accept_last, reject_all)),
        Life(two, (64, 2), (1, 12), (accept_first,)),
        Life(three[: max(2, len(three) // 2)], (1, 22), (12,), (reject_all, accept_last)),
    ]
    return _compare("state.batches", subject, lives, RAGGED)


def _compare(
    check: str, subject: Subject, lives: Sequence[Life], groups: Sequence[Sequence[int]]
) -> str:
    together = play(Stage(subject, subject.bound(), check), lives, groups)
    if not subject.deterministic:
        return "valid proposals; not compared, the adapter declares deterministic = False"
    for i, (life, text) in enumerate(zip(lives, together, strict=True)):
        alone = [[0]] * sum(i in group for group in groups)
        (lonely,) = play(Stage(subject, subject.bound(), check), [life], alone)
        same(
            check,
            text.proposals,
            lonely.proposals,
            f"sequence {i + 1} of {len(lives)} to get the proposals that it gets alone",
            "Keep state per view.key, and match views with their proposals by position.",
        )
    return f"{sum(len(text.proposals) for text in together)} proposals as if alone"


@adapter_checks.add("state.reopen")
def a_key_is_used_again(subject: Subject) -> str:
    """After close a key may come again with another text; nothing of the old one is left."""
    first, second = Life(subject.three[0]), Life(subject.three[1])
    stage = Stage(subject, subject.bound(), "state.reopen")
    text = stage.open(first, key=7)
    for _ in range(3):
        stage.round([text])
    stage.close(text)
    again = stage.open(second, key=7)
    fresh_stage = Stage(subject, subject.bound(), "state.reopen")
    fresh = fresh_stage.open(second, key=7)
    for _ in range(4):
        stage.round([again])
        fresh_stage.round([fresh])
    stage.close(again)
    fresh_stage.close(fresh)
    if subject.deterministic:
        same(
            "state.reopen",
            again.proposals,
            fresh.proposals,
            "a key that is opened again to behave like a new one",
            "Drop everything that is kept for view.key in close (and start anew in open).",
        )
    return "two texts under one key"
