"""Between the engine and an adapter under test: checks what is shown and told, and hands it on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.adapters.base import Adapter, Needs, TargetInfo
from specla.core.lifecycle import Phase
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.fuzz.demand import demand
from specla.fuzz.interrupts import uninterrupted
from specla.fuzz.plain import same
from specla.fuzz.sessions.account import Account
from specla.fuzz.sessions.adapters import HostileAdapter
from specla.fuzz.sessions.oracle import Oracle
from specla.fuzz.sessions.proposals import Claim
from specla.models.qwen35.options import TargetOptions


@dataclass
class Asked:
    """A proposal of this round. start: length of the text before it.  claim: None if refused."""

    start: int
    max_depth: int
    claim: Claim | None


class Watcher(Adapter):
    """One session's side of an adapter, which may be that of other sessions too.

    A hook can't report a difference by raising, because the engine bears with whatever an adapter
    raises: ``found`` holds the first one.  refusals, errors: what the session must have counted.
    exit_in: hook, and the call of it that raises SystemExit, once.  download: brings an array of
    the target's to the host.
    """

    deterministic = False

    def __init__(
        self,
        inner: Adapter,
        prompt: Sequence[int],
        oracle: Oracle,
        options: TargetOptions,
        download: Callable[[Any], npt.NDArray[Any]],
    ) -> None:
        super().__init__()
        self.inner = inner
        self.account: Account | None = None
        self.key: int | None = None
        self.closed = False
        self.found: AssertionError | None = None
        self.refusals = self.errors = self.rounds = 0
        self.exit_in: tuple[str, int] | None = None
        self._prompt, self._oracle, self._options = list(prompt), oracle, options
        self._download = download
        self._asked: Asked | None = None
        self._unfinished = False
        self._kept: SequenceView | None = None

    # -- what the driver says ----------------------------------------------------------------

    def forget_round(self) -> None:
        """A generation begins, or a round died: nothing that was proposed counts any more."""
        self._asked, self._unfinished = None, False

    # -- the adapter's hooks -------------------------------------------------------------------

    def needs(self) -> Needs:
        return replace(self.inner.needs(), features=self._options.features)

    def bind(self, target: TargetInfo) -> None:
        self.inner.bind(target)

    def open(self, view: SequenceView) -> None:
        with _Finding(self):
            demand(self.key is None, "a sequence was opened twice")
            self.key = view.key
            self._check_idle_view(view)
            demand(list(view.tokens) == self._prompt, "open shows another text than the prompt")
            self._check_features(view)
        self._forward("open", lambda: self.inner.open(view))

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        with _Finding(self):
            self._check_asked(views)
        self._exit("propose")
        view = views[0]
        asked = Asked(len(view.tokens), view.max_depth, None)
        self._asked = asked
        try:
            answer = self.inner.propose(views)
        except KeyboardInterrupt:
            raise
        except BaseException:
            self.refusals += 1
            with _Finding(self):
                demand(getattr(self.inner, "fault", None) is None, "a proposal couldn't be made")
            raise
        # one that isn't hostile proposes what can be verified
        inner = self.inner
        asked.claim = inner.claim if isinstance(inner, HostileAdapter) else _claim_of(answer)
        self.refusals += asked.claim is None
        return answer

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.rounds += 1
        with _Finding(self):
            self._check_told(views, outcomes)
        self._exit("observe")
        self._forward("observe", lambda: self.inner.observe(views, outcomes))

    def close(self, view: SequenceView) -> None:
        with _Finding(self):
            self._check_open(view)
            self.closed = True
        self._forward("close", lambda: self.inner.close(view))

    def _forward(self, hook: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception:
            self.errors += 1
            raise

    def _exit(self, hook: str) -> None:
        if self.exit_in is None or self.exit_in[0] != hook:
            return
        self.exit_in = (hook, self.exit_in[1] - 1)
        if self.exit_in[1] < 0:
            self.exit_in = None
            if hook == "propose":
                self.refusals += 1
            else:
                self.errors += 1
            raise SystemExit(3)

    # -- checks -------------------------------------------------------------------------------

    def _check_open(self, view: SequenceView) -> None:
        demand(self.key is not None, "a hook was called before open")
        demand(not self.closed, "a hook was called after close")
        demand(view.key == self.key, f"key {view.key} for the sequence of key {self.key}")

    def _check_idle_view(self, view: SequenceView) -> None:
        shown = (view.budget, view.max_depth, view.greedy)
        demand(shown == (0, 0, False), f"a view without a round shows {shown}")

    def _check_text(self, view: SequenceView) -> Account:
        account = self.account
        assert account is not None
        account.resolve(len(view.tokens))
        text, wanted = list(view.tokens), account.tokens
        unseen = account.trouble == "interrupt" and len(text) == len(wanted) + 1
        if unseen and account.running is not None:
            # an interrupt may keep the last token that counts from the consumer
            wanted = [*wanted, self._oracle.choice(wanted, account.running.sampler)]
        demand(text == wanted, f"the adapter sees {text}; the text is {wanted}")
        demand(view.root == text[-1], f"the root is shown as {view.root}")
        demand(view.prompt_length == len(self._prompt), f"prompt of {view.prompt_length}")
        return account

    def _check_features(self, view: SequenceView) -> None:
        account = self.account
        broken = account is not None and account.session.sequence.phase is Phase.BROKEN
        # one that is BROKEN shows nothing any more, and says so when it is verified
        if not self._options.features or broken:
            return
        seen = view.features(0, len(view.tokens) - 1)
        # of a GPU's arrays there are no views that can't be written
        if isinstance(seen, np.ndarray):
            demand(not seen.flags.writeable, "features can be written")
        wanted = self._oracle.features(list(view.tokens)[:-1])
        demand(wanted is not None and same(self._download(seen), wanted), "features differ")

    def _check_asked(self, views: Sequence[SequenceView]) -> None:
        demand(len(views) == 1, f"{len(views)} views for one session")
        (view,) = views
        self._check_open(view)
        account = self._check_text(view)
        running = account.running
        assert running is not None
        demand(not self._unfinished, "a right candidate was not accepted")
        budget, depth = self._room(len(view.tokens))
        demand(view.budget == budget > 0, f"a budget of {view.budget}; {budget} are to be had")
        demand(view.max_depth == depth > 0, f"max_depth is {view.max_depth}; {depth} can be used")
        greedy = running.sampler.params.temperature == 0
        demand(view.greedy == greedy, f"greedy is {view.greedy}")
        self._check_features(view)
        self._check_kept(view)

    def _room(self, length: int) -> tuple[int, int]:
        """Most candidates, and deepest one, in a round that begins with a text of ``length``."""
        account = self.account
        assert account is not None and account.running is not None
        running = account.running
        start = length if running.start is None else running.start
        remaining = running.max_tokens - (length - start)
        budget = min(running.budget, self._options.max_nodes - 1)
        return budget, min(remaining - 1, self._options.context - length)

    def _check_kept(self, view: SequenceView) -> None:
        """A view of an earlier round shows the text of now."""
        kept, self._kept = self._kept, view
        if kept is not None:
            demand(list(kept.tokens) == list(view.tokens), "a view that was kept shows other text")
            self._check_features(kept)

    def _check_told(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        demand(len(views) == len(outcomes) == 1, "more than one outcome for one session")
        view, outcome = views[0], outcomes[0]
        self._check_open(view)
        self._check_idle_view(view)
        account = self._check_text(view)
        self._check_features(view)
        asked, self._asked = self._asked, None
        if asked is None:
            budget, depth = self._room(len(view.tokens) - 1)
            demand(min(budget, depth) <= 0, f"not asked, with room for {budget}, {depth} deep")
            asked = Asked(len(view.tokens) - 1, 0, _NOTHING)
        emitted = list(view.tokens)[asked.start :]
        account.floor = len(view.tokens)
        demand(len(emitted) > 0, "told of a round without a token")
        demand(outcome.bonus == emitted[-1], f"a bonus of {outcome.bonus}; it was {emitted[-1]}")
        refused = asked.claim is None
        demand((outcome.refused is not None) == refused, f"refused: {outcome.refused}")
        self._check_path(account, asked, emitted, outcome)
        demand(outcome.seconds > 0, f"it took {outcome.seconds} seconds")

    def _check_path(
        self, account: Account, asked: Asked, emitted: list[int], outcome: Outcome
    ) -> None:
        """The accepted candidates spell what was emitted, and no right one was left out."""
        claim = _NOTHING if asked.claim is None else asked.claim
        node, path = -1, []
        for token in emitted[:-1]:
            found = claim.child(node, token)
            demand(found is not None, f"{emitted} were emitted, which the proposal doesn't hold")
            assert found is not None
            node = found
            path.append(node)
        demand(outcome.accepted == tuple(path), f"accepted {outcome.accepted}; it was {path}")
        rows = len(emitted) if account.verifier == "sequential" else claim.rows(asked.max_depth)
        # the choice after one more row may have failed
        more = account.verifier == "sequential" and account.trouble != "none"
        demand(
            rows <= outcome.rows <= rows + more,
            f"{outcome.rows} rows were reported; there are {rows}",
        )
        deeper = claim.child(node, emitted[-1]) is not None
        self._unfinished = deeper and len(emitted) <= asked.max_depth


_NOTHING = Claim()


def _claim_of(answer: list[Proposal]) -> Claim:
    (proposal,) = answer
    return Claim(tuple(map(int, proposal.tokens)), tuple(map(int, proposal.parents)))


class _Finding:
    """Keeps the first FoundError (or failed assert) of a block; everything else passes. No
    interrupt strikes in it."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._untouched = uninterrupted()

    def __enter__(self) -> None:
        self._untouched.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        self._untouched.__exit__(None, None, None)
        if not isinstance(error, AssertionError):
            return False
        if self._watcher.found is None:
            self._watcher.found = error
        return True
