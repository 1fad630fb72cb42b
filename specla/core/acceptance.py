"""Which candidates the target agrees with, and how a stop rule cuts that short.

The target makes its own choice at each node on the walk, with the sampler of plain decoding; a
candidate is accepted when it *is* that choice. So the text is plain decoding's, greedy or sampled,
and no draft probability enters (see docs/architecture.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import index

from specla.core.topology import Tree
from specla.errors import LifecycleError

Choose = Callable[[int, tuple[int, ...]], int]
"""choose(node, accepted) -> the target's token after ``node``. ``accepted``: the candidates' tokens
from the root (excluded: it is in the history already) to ``node``; empty at the root."""


@dataclass(frozen=True)
class Acceptance:
    """Outcome of a walk.

    path: accepted nodes, root (0) first; what the round commits.  bonus: the target's own choice
    after the path; decided but not committed, it is the next root.
    """

    path: tuple[int, ...]
    bonus: int

    @property
    def accept_length(self) -> int:
        """Tokens committed, root included; also the number emitted, bonus included."""
        return len(self.path)

    def emitted(self, tree: Tree) -> tuple[int, ...]:
        """New tokens of the round, in text order: accepted candidates, then the bonus."""
        return (*(tree.tokens[node] for node in self.path[1:]), self.bonus)


def walk(tree: Tree, choose: Choose) -> Acceptance:
    """Follow the target's choices from the root for as long as a child carries the chosen token.

    ``choose`` is called once per node of the path, in path order, and for no other node.
    """
    path = [0]
    accepted: list[int] = []
    while True:
        token = index(choose(path[-1], tuple(accepted)))
        child = tree.child_with_token(path[-1], token)
        if child is None:
            return Acceptance(tuple(path), token)
        path.append(child)
        accepted.append(token)


def cut(acceptance: Acceptance, tree: Tree, n_emit: int) -> Acceptance:
    """Let only the first ``n_emit`` emitted tokens count (end of text, stop string, limit, cancel).

    The last token that counts becomes the new bonus, and the path keeps n_emit nodes: the root and
    the n_emit - 1 candidates before that token. Why not commit it too, where it was an accepted
    candidate: plain decoding hasn't fed its newest token to the model either. After a stop the
    state and the next root are then the same however the tokens were found, and decoding goes on
    from there to the same bytes.

    n_emit: 1 .. accept_length; raises LifecycleError outside (emit none = discard the verify).
    Raises TopologyError if the path isn't one of ``tree``.
    """
    path = tree.check_path(acceptance.path)
    if not 1 <= n_emit <= len(path):
        raise LifecycleError(
            f"can't cut a round to {n_emit} tokens: it emits 1..{len(path)}; "
            "to emit none, discard the verify"
        )
    if n_emit == len(path):
        return acceptance
    return Acceptance(path[:n_emit], tree.tokens[path[n_emit]])
