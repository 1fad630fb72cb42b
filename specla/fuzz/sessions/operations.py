"""What can be done with the sessions of a world, as frozen values. Sessions are named by number."""

from __future__ import annotations

from dataclasses import dataclass

from specla.core.lifecycle import Phase
from specla.errors import BrokenSequenceError, CapacityError, LifecycleError
from specla.fuzz.demand import demand, demand_refusal
from specla.fuzz.interrupts import uninterrupted
from specla.fuzz.sessions import generations
from specla.fuzz.sessions.account import Account
from specla.fuzz.sessions.adapters import AdapterSpec
from specla.fuzz.sessions.misuses import MISUSES
from specla.fuzz.sessions.wishes import CallerError, Trouble, Wish
from specla.fuzz.sessions.world import CALLS, SessionWorld

TREE, WISH, QUIET = AdapterSpec(), Wish(), Trouble()

_OPENING = (17, 4, 29, 4, 17, 8, 2, 33)


@dataclass(frozen=True)
class SessionOperation:
    """Base of all: what must hold after any of them."""

    def play(self, world: SessionWorld) -> None:
        """Do it and check every claim. Raises FoundError."""
        self.act(world)
        world.check()

    def act(self, world: SessionWorld) -> None:
        raise NotImplementedError


@dataclass(frozen=True)
class Open(SessionOperation):
    """A new session. lead: tokens of a fixed text that come before ``prompt``, so that long
    prompts have much in common.  shared: with the adapter of an earlier session of this spec."""

    prompt: tuple[int, ...] = (1,)
    lead: int = 0
    adapter: AdapterSpec = TREE
    verifier: str = "tree"
    shared: bool = False
    trouble: Trouble = QUIET

    def act(self, world: SessionWorld) -> None:
        lead = [_OPENING[i % 8] + i // 8 % 5 for i in range(self.lead)]
        prompt = [*lead, *(token % world.oracle.vocab_size for token in self.prompt)]
        prompt = prompt[: world.target.options.context]

        def make() -> None:
            world.open(prompt, self.adapter, self.verifier, self.shared)

        # an interrupt of a constructor leaves nobody who could close what it opened
        quiet = self.trouble.kind not in (*CALLS, "prefill")
        world.under(QUIET if quiet else self.trouble, None, make)


@dataclass(frozen=True)
class Generate(SessionOperation):
    """Ask for a generation and take ``take`` events of it (-1: all), or until it ends.

    end: "drain", "cancel" (and drain), "close", "throw", "forget", or "leave" it unfinished.
    cancelled: cancel() comes before it.  A session that was BROKEN before is closed after it.
    """

    session: int = 0
    wish: Wish = WISH
    take: int = -1
    end: str = "drain"
    cancelled: bool = False
    trouble: Trouble = QUIET

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is None:
            return
        was_broken = account.broken
        if self.cancelled:
            _cancel(account)

        def generate() -> None:
            generations.start(world, account, self.wish)
            _take(world, account, self.take)
            _end(world, account, self.end, quiet=self.trouble.kind == "none")

        world.under(self.trouble, account, generate)
        if was_broken:
            # it has been refused, and nothing else can be done with it
            world.close(account)


@dataclass(frozen=True)
class GoOn(SessionOperation):
    """Take more of an unfinished generation; end: see Generate."""

    session: int = 0
    take: int = 1
    end: str = "leave"
    trouble: Trouble = QUIET

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is None:
            return

        def go_on() -> None:
            _take(world, account, self.take)
            _end(world, account, self.end, quiet=self.trouble.kind == "none")

        world.under(self.trouble, account, go_on)


@dataclass(frozen=True)
class Interleave(SessionOperation):
    """Every session that has none begins a generation; all of them take turns."""

    wish: Wish = WISH
    turns: int = 4
    end: str = "drain"

    def act(self, world: SessionWorld) -> None:
        for account in world.accounts:
            if account.running is None:
                generations.start(world, account, self.wish)
        for _ in range(self.turns):
            for account in world.accounts:
                generations.advance(world, account)
                world.check()
        for account in world.accounts:
            _end(world, account, self.end, quiet=True)


def _take(world: SessionWorld, account: Account, count: int) -> None:
    taken = 0
    while taken != count and generations.advance(world, account):
        taken += 1


def _end(world: SessionWorld, account: Account, how: str, *, quiet: bool) -> None:
    """quiet: nothing is made to fail."""
    if how == "cancel" and account.running is not None:
        _cancel(account)
    if how in ("drain", "cancel"):
        _take(world, account, -1)
    elif how != "leave":
        # what fails while the garbage collector closes a generator is lost
        generations.drop(world, account, how if quiet else "close")


def _cancel(account: Account) -> None:
    account.session.cancel()
    running = account.running
    if running is not None and running.start is not None:
        running.cancelled = True
    else:
        account.cancelled = True


@dataclass(frozen=True)
class Extend(SessionOperation):
    """Append tokens, as a user's next turn; refused while a generation is unfinished."""

    session: int = 0
    tokens: tuple[int, ...] = (1,)
    trouble: Trouble = QUIET

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is not None:
            world.under(self.trouble, account, lambda: self._extend(world, account))

    def _extend(self, world: SessionWorld, account: Account) -> None:
        session = account.session
        ids = [token % world.oracle.vocab_size for token in self.tokens]
        if account.running is not None and account.running.start is not None:
            demand_refusal(LifecycleError, lambda: session.extend(ids))
            return
        if len(account.tokens) + len(ids) > world.target.options.context:
            world.settle(account)
        if len(account.tokens) + len(ids) > world.target.options.context:
            demand_refusal(CapacityError, lambda: session.extend(ids))
            return
        prefill = account.prefill
        prefill.done = 0
        prefill.fails_at = world.trouble.n if world.trouble.kind == "prefill" else None
        account.asked += len(ids)
        try:
            session.extend(ids)
        except generations.FAILURES as error:
            self._failed(world, account, ids, error)
        else:
            with uninterrupted():  # what looks on is not under test
                self._extended(world, account, ids)
        finally:
            prefill.fails_at = None

    def _extended(self, world: SessionWorld, account: Account, ids: list[int]) -> None:
        done = account.prefill.done
        demand(not account.broken or not ids, "a BROKEN session was extended")
        demand(done == len(ids), f"told of {done} of {len(ids)} tokens")
        world.settled(account, len(account.session.tokens) - len(ids))
        account.tokens += ids
        account.given += len(ids)
        account.prefilled += len(ids)
        account.floor = len(account.tokens)

    def _failed(
        self, world: SessionWorld, account: Account, ids: list[int], error: BaseException
    ) -> None:
        """The chunks before the failure are in; after an interrupt, perhaps one more."""
        if isinstance(error, BrokenSequenceError):
            world.settled(account, len(account.session.tokens))
            demand(account.broken, f"a sound session says that it is BROKEN: {error}")
            return
        if isinstance(error, CapacityError):
            demand(world.interrupted, f"an unexpected refusal: {error}")
        world.settled(account, len(account.session.tokens))
        done = account.prefill.done
        if isinstance(error, KeyboardInterrupt):
            world.interrupted = True
        more = world.target.options.chunk if isinstance(error, KeyboardInterrupt) else 0
        low = len(account.tokens) + done
        account.tokens += ids[: done + more]
        account.given += done
        account.prefilled += done
        account.uncertain = (low, len(account.tokens))
        account.may_break = not isinstance(error, CallerError)
        account.inexact |= not isinstance(error, CallerError)


@dataclass(frozen=True)
class Close(SessionOperation):
    """how: "once", "twice", or "under" an unfinished generation, whose generator then is closed,
    or "on": taken further."""

    session: int = 0
    how: str = "once"

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is None:
            return
        if self.how in ("under", "on"):
            generations.close_under(world, account, go_on=self.how == "on")
            return
        generations.drop(world, account, "close")
        world.close(account, twice=self.how == "twice")


@dataclass(frozen=True)
class Cancel(SessionOperation):
    """Stop the present generation, or else the next one."""

    session: int = 0

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is not None:
            _cancel(account)


@dataclass(frozen=True)
class Check(SessionOperation):
    """Compare the committed state. how: "fork", "snapshot" or "own"."""

    session: int = 0
    how: str = "fork"

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is not None:
            world.check_state(account, self.how)


@dataclass(frozen=True)
class Misuse(SessionOperation):
    """What must be refused with the documented error, and change nothing. what: a key of MISUSES
    (misuses.py)."""

    session: int = 0
    what: str = "token beyond"

    def act(self, world: SessionWorld) -> None:
        account = world.account(self.session)
        if account is not None:
            world.settle(account)
            misuse = MISUSES[self.what]
            started = account.running is not None and account.running.start is not None
            error = misuse.busy if started else misuse.error
            phase = account.session.sequence.phase
            demand_refusal(error, lambda: misuse.call(world, account))
            demand(account.session.sequence.phase is phase, "a refusal changed the phase")
            demand(account.broken or phase is not Phase.BROKEN, "BROKEN by nothing")


OPERATIONS: tuple[type[SessionOperation], ...] = (
    *(Open, Generate, GoOn, Interleave, Extend, Close, Cancel, Check, Misuse),
)
