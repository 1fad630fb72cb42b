"""Sequences driven by hand: the same steps as the engine's, but the kit decides what is accepted.

The target really verifies and commits each round, so that features are those of a real run; only
the choice of the accepted path and of the bonus token is made up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from specla.core.acceptance import Acceptance
from specla.core.proposal import Outcome, Proposal, ReadOnly, SequenceView, to_tree
from specla.core.topology import Tree, prune
from specla.errors import ProposalError
from specla.testing.errors import ConformanceError
from specla.testing.subject import Subject, Watched

Policy = Callable[[Tree], tuple[int, ...]]
"""Which nodes of a tree are accepted, root first."""

_keys = itertools.count(1_000_000)


def reject_all(tree: Tree) -> tuple[int, ...]:
    """Nothing but the root."""
    return (0,)


def accept_first(tree: Tree) -> tuple[int, ...]:
    """Down the first children, but for the last level: a prefix where the tree is a chain."""
    path = _down(tree, 0)
    return path[:-1] if len(path) > 2 else path


def accept_last(tree: Tree) -> tuple[int, ...]:
    """Down the last children: siblings before them are rejected."""
    return _down(tree, -1)


def _down(tree: Tree, which: int) -> tuple[int, ...]:
    path = [0]
    while tree.children[path[-1]]:
        path.append(tree.children[path[-1]][which])
    return tuple(path)


POLICIES: dict[str, Policy] = {
    "everything is rejected": reject_all,
    "a prefix is accepted": accept_first,
    "siblings are accepted": accept_last,
}


@dataclass(frozen=True)
class Life:
    """What happens to one sequence: its prompt, and budget, depth and policy of its n-th round,
    each list read round and round."""

    prompt: list[int]
    budgets: tuple[int, ...] = (22, 7, 64, 1, 2)
    depths: tuple[int, ...] = (12, 5)
    policies: tuple[Policy, ...] = tuple(POLICIES.values())


@dataclass(eq=False)
class Text:
    """One open sequence."""

    life: Life
    key: int
    sequence: Any
    tokens: list[int]
    rounds: int = 0
    proposals: list[Proposal] = field(default_factory=list)


class Stage:
    """A target and one adapter, driven round by round."""

    def __init__(self, subject: Subject, adapter: Watched, check: str) -> None:
        self.subject, self.adapter, self.check = subject, adapter, check
        self.target = subject.target

    def open(self, life: Life, key: int | None = None) -> Text:
        """A new sequence whose prompt is in the state, but for the root."""
        sequence = self.target.open()
        tokens, chunk = list(life.prompt), self.target.options.chunk
        for start in range(0, len(tokens) - 1, chunk):
            self.target.prefill([(sequence, tokens[start : min(start + chunk, len(tokens) - 1)])])
        text = Text(life, next(_keys) if key is None else key, sequence, tokens)
        self.adapter.open(self.view(text))
        return text

    def close(self, text: Text) -> None:
        """It is over."""
        self.adapter.close(self.view(text))
        self.target.close(text.sequence)

    def view(self, text: Text, budget: int = 0, max_depth: int = 0) -> SequenceView:
        """As the engine would show it."""
        return SequenceView(
            text.key,
            ReadOnly(text.tokens),
            len(text.life.prompt),
            budget,
            max_depth,
            lambda start, stop: self.target.features(text.sequence, start, stop),
        )

    def round_view(self, text: Text) -> SequenceView:
        """For the next round of its life."""
        life, n = text.life, text.rounds
        return self.view(
            text, life.budgets[n % len(life.budgets)], life.depths[n % len(life.depths)]
        )

    def propose(self, views: Sequence[SequenceView]) -> tuple[list[Proposal], list[Tree]]:
        """Proposals and their trees, all valid. Raises ConformanceError."""
        proposals: Any = self.adapter.propose(views)
        if not isinstance(proposals, (list, tuple)) or len(proposals) != len(views):
            shown = f"{type(proposals).__name__}"
            if isinstance(proposals, (list, tuple)):
                shown += f" of {len(proposals)}"
            raise ConformanceError(
                self.check,
                expected=f"a list of {len(views)} proposals for {len(views)} views",
                found=f"a {shown}",
                remedy="Return one Proposal per view, in order; an empty one where there is none.",
            )
        pairs = zip(proposals, views, strict=True)
        return list(proposals), [self._tree(proposal, view) for proposal, view in pairs]

    def _tree(self, proposal: Proposal, view: SequenceView) -> Tree:
        if not isinstance(proposal, Proposal):
            raise ConformanceError(
                self.check,
                expected="proposals of type specla.core.proposal.Proposal",
                found=type(proposal).__name__,
                remedy="Build one with Proposal(tokens, parents, log_probs).",
            )
        vocab = self.target.config.vocab_size
        try:
            return to_tree(proposal, view, vocab_size=vocab, adapter=self.subject.name)
        except ProposalError as error:
            raise ConformanceError(
                self.check,
                expected=f"a valid tree at budget {view.budget} and max_depth {view.max_depth}",
                found=str(error),
                remedy="The engine would refuse it and decode plainly: mind the budget, put "
                "parents before children, give siblings different tokens.",
            ) from error

    def round(self, texts: Sequence[Text]) -> None:
        """All of ``texts`` propose at once, are verified at once, and go on."""
        views = [self.round_view(text) for text in texts]
        proposals, trees = self.propose(views)
        kept = [prune(tree, view.max_depth) for tree, view in zip(trees, views, strict=True)]
        self.target.verify([(t.sequence, k[0]) for t, k in zip(texts, kept, strict=True)])
        outcomes = []
        for text, proposal, (tree, numbers) in zip(texts, proposals, kept, strict=True):
            policy = text.life.policies[text.rounds % len(text.life.policies)]
            acceptance = Acceptance(path := policy(tree), self._bonus(text, tree, path[-1]))
            self.target.commit(text.sequence, path)
            text.tokens += acceptance.emitted(tree)
            text.rounds += 1
            text.proposals.append(proposal)
            accepted = tuple(numbers[node] - 1 for node in path[1:])
            outcomes.append(Outcome(accepted, acceptance.bonus, None, len(tree), 1e-3))
        self.adapter.observe([self.view(text) for text in texts], outcomes)

    def _bonus(self, text: Text, tree: Tree, tip: int) -> int:
        """A token of the prompt, so that the text stays a text, that no child of the tip carries:
        it would have been accepted."""
        prompt, vocab = text.life.prompt, self.target.config.vocab_size
        start = 5 * text.rounds + len(text.tokens)
        options = [prompt[(start + i) % len(prompt)] for i in range(len(prompt))]
        taken = {tree.tokens[child] for child in tree.children[tip]}
        free: list[int] = [t for t in (*options, *range(vocab)) if t not in taken]
        return free[0]


def play(stage: Stage, lives: Sequence[Life], groups: Sequence[Sequence[int]]) -> list[Text]:
    """Rounds in which the sequences named by each group propose together, in its order.

    A sequence is opened when it is first named and closed after it was named last.
    """
    texts: dict[int, Text] = {}
    for n, group in enumerate(groups):
        for i in group:
            texts[i] = texts.get(i) or stage.open(lives[i])
        stage.round([texts[i] for i in group])
        for i in group:
            if not any(i in later for later in groups[n + 1 :]):
                stage.close(texts[i])
    return [texts[i] for i in sorted(texts)]


def shown(proposal: Proposal) -> str:
    """A proposal in a message."""
    return f"tokens {list(proposal.tokens)[:12]}, parents {list(proposal.parents)[:12]}"


def difference(found: Proposal, wanted: Proposal) -> str | None:
    """In which part two proposals differ; None if they don't."""
    for part in ("tokens", "parents", "log_probs"):
        one, other = getattr(found, part), getattr(wanted, part)
        if (one is None) != (other is None) or (one is not None and list(one) != list(other)):
            return part
    return None


def require_same(
    check: str, found: Sequence[Proposal], wanted: Sequence[Proposal], expected: str, remedy: str
) -> None:
    """Equal lists of proposals, or a ConformanceError that names the round."""
    for n, (one, other) in enumerate(zip(found, wanted, strict=False)):
        part = difference(one, other)
        if part is not None:
            raise ConformanceError(
                check,
                expected=expected,
                found=f"other {part} in round {n + 1}: {shown(one)} instead of {shown(other)}",
                remedy=remedy,
            )
    if len(found) != len(wanted):
        raise ConformanceError(
            check,
            expected=f"{len(wanted)} rounds",
            found=f"{len(found)}",
            remedy="This is a defect of the kit; report it.",
        )
