"""Between the engine and an adapter, which is never trusted.

Whatever an adapter returns or raises while decoding, the result here is a valid tree. A bad
proposal is refused, counted and named; the round then decodes plainly. What may have come from
outside while the adapter ran passes through: KeyboardInterrupt, and, counted and named all the
same, SystemExit (a signal handler's) or the cancellation of a task. The session can go on then.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from specla.adapters.base import Adapter
from specla.core.proposal import Outcome, Proposal, SequenceView, to_tree
from specla.core.topology import Tree, prune
from specla.errors import ProposalError

LONGEST_REASON = 300


def _is_nothing(proposal: object) -> bool:
    """Whether it is an empty proposal and plainly so: most rounds of many adapters."""
    return (
        type(proposal) is Proposal
        and type(proposal.tokens) is tuple
        and type(proposal.parents) is tuple
        and not (proposal.tokens or proposal.parents or proposal.log_probs is not None)
    )


class GuardedAdapter:
    """One adapter's side of one session.

    on_refusal: told why a proposal was not verified.  on_error: told of every other call that
    failed, which costs nothing but what the adapter would have learned.
    """

    def __init__(
        self,
        adapter: Adapter,
        name: str,
        vocab_size: int,
        *,
        on_refusal: Callable[[str], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._adapter = adapter
        self._name = name
        self._vocab_size = vocab_size
        self._on_refusal = on_refusal
        self._on_error = on_error

    def open(self, view: SequenceView) -> None:
        """The sequence begins."""
        self._call("open", lambda: self._adapter.open(view))

    def propose(self, view: SequenceView) -> tuple[Tree, tuple[int, ...], str | None]:
        """Root and candidates as a tree, without those that are too deep to be used.

        Also the number in the adapter's own tree of each node that was kept, and why the proposal
        was refused, if it was: then the tree is the root alone.
        """
        if view.budget == 0:
            return Tree.lone(view.root), (0,), None
        try:
            # a copy: what the proposal is measured by must be out of the adapter's reach
            tree = self._tree(self._adapter.propose([replace(view)]), view)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            reason = self._reason("propose", error)
            self._on_refusal(reason)
            if _from_outside(error):
                raise
            return Tree.lone(view.root), (0,), reason
        pruned, kept = prune(tree, view.max_depth)
        return pruned, kept, None

    def _tree(self, proposals: object, view: SequenceView) -> Tree:
        if not isinstance(proposals, (list, tuple)) or len(proposals) != 1:
            raise ProposalError(
                f"adapter {self._name!r} must return a list of one proposal per view"
            )
        (proposal,) = proposals
        if _is_nothing(proposal):
            return Tree.lone(view.root)
        return to_tree(proposal, view, vocab_size=self._vocab_size, adapter=self._name)

    def observe(self, view: SequenceView, outcome: Outcome) -> None:
        """What became of the last proposal."""
        self._call("observe", lambda: self._adapter.observe([view], [outcome]))

    def close(self, view: SequenceView) -> None:
        """The sequence is over."""
        self._call("close", lambda: self._adapter.close(view))

    def _call(self, hook: str, call: Callable[[], None]) -> None:
        try:
            call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._on_error(self._reason(hook, error))
            if _from_outside(error):
                raise

    def _reason(self, hook: str, error: BaseException) -> str:
        try:
            reason = _one_line(str(error))
        except Exception:
            reason = "(its message can't be shown)"
        if isinstance(error, ProposalError):
            return reason
        return f"adapter {self._name!r} failed in {hook}: {type(error).__name__}: {reason}"


def _from_outside(error: BaseException) -> bool:
    """Whether others than the adapter may have raised it while the adapter ran.

    GeneratorExit is none: it reaches only code that has yielded.
    """
    return not isinstance(error, (Exception, GeneratorExit))


def _one_line(text: str) -> str:
    """Short, and harmless on a terminal."""
    line = " ".join(text[: 4 * LONGEST_REASON].split())[:LONGEST_REASON]
    return "".join(letter if letter.isprintable() else "?" for letter in line)
