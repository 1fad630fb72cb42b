"""What was proposed and rejected must leave no trace."""

from __future__ import annotations

from specla.testing.adapter_checks import adapter_checks
from specla.testing.stage import POLICIES, Life, Policy, Stage, require_same
from specla.testing.subject import Subject

ROUNDS = 6


@adapter_checks.add("rollback.rejected")
def everything_is_rejected(subject: Subject) -> str:
    """After rounds in which every candidate was rejected, the adapter proposes what one would that
    never proposed anything before."""
    return _force(subject, "rollback.rejected", (POLICIES["everything is rejected"],))


@adapter_checks.add("rollback.prefix")
def a_prefix_is_accepted(subject: Subject) -> str:
    """The same after rounds in which a path was accepted, but for its last candidate."""
    return _force(subject, "rollback.prefix", (POLICIES["a prefix is accepted"],))


@adapter_checks.add("rollback.siblings")
def siblings_are_accepted(subject: Subject) -> str:
    """The same after rounds in which the last of all siblings was accepted, on every level."""
    return _force(subject, "rollback.siblings", (POLICIES["siblings are accepted"],))


@adapter_checks.add("rollback.mixed")
def anything_is_accepted(subject: Subject) -> str:
    """The same when all of these take turns."""
    return _force(subject, "rollback.mixed", tuple(POLICIES.values()))


def _force(subject: Subject, check: str, policies: tuple[Policy, ...]) -> str:
    compared = 0
    for prompt in subject.prompts[:2]:
        stage = Stage(subject, subject.bound(), check)
        text = stage.open(Life(prompt, budgets=(22, 7, 64), policies=policies))
        for n in range(ROUNDS):
            stage.round([text])
            if not subject.deterministic or n not in (0, ROUNDS // 2, ROUNDS - 1):
                continue
            # the same text, features included, shown to an adapter that has no past
            fresh, view = Stage(subject, subject.bound(), check), stage.round_view(text)
            fresh.adapter.open(stage.view(text))
            found, _ = stage.propose([view])
            wanted, _ = fresh.propose([view])
            fresh.adapter.close(stage.view(text))
            require_same(
                check,
                found,
                wanted,
                f"after {n + 1} forced rounds the proposal of a fresh adapter for the same text",
                "Roll back what was learned from rejected candidates (caches, counts, recurrent "
                "state): view.tokens is the truth. Where chance or experience is meant to decide, "
                "declare deterministic = False.",
            )
            compared += 1
        stage.close(text)
    return f"{compared} proposals compared" if compared else "valid proposals; not compared"
