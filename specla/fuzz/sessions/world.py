"""Several sessions on one target, each with the driver's own account of what it must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from specla import choosing, engine, verification
from specla.adapters.base import Adapter
from specla.core import lifecycle
from specla.core.lifecycle import Phase
from specla.core.sampling import Sampler, SamplingParams
from specla.engine import Session
from specla.errors import CapacityError, LifecycleError, OptionError
from specla.fuzz.demand import demand, demand_refusal
from specla.fuzz.failing import FOLDS, KERNELS, TRANSFERS, FailingBackend, InjectedError
from specla.fuzz.interrupts import interrupted
from specla.fuzz.plain import difference, same
from specla.fuzz.sessions.account import Account, Progress
from specla.fuzz.sessions.adapters import AdapterSpec, make_adapter
from specla.fuzz.sessions.oracle import Oracle
from specla.fuzz.sessions.watcher import Watcher
from specla.fuzz.sessions.wishes import CallerError, Trouble
from specla.models import store
from specla.models.qwen35.target import Qwen35Target
from specla.request import Request

VERIFIERS: dict[str, type[verification.Verifier]] = {
    "tree": verification.TreeVerifier,
    "unfused": verification.UnfusedTreeVerifier,
    "replay": verification.ReplayVerifier,
    "sequential": verification.SequentialVerifier,
}

INTERRUPTED = tuple(
    str(module.__file__) for module in (engine, choosing, verification, lifecycle, store)
)

CALLS = {"kernel": KERNELS, "fold": FOLDS, "transfer": TRANSFERS}
"""Calls of the backend that a kind of trouble makes fail."""

GREEDY = Sampler(SamplingParams())


class SessionWorld:
    """target: under test.  oracle: plain decoding of the same model.  backend: the target's, if it
    can fail.  rounds: that were verified so far.  interrupted: an interrupt struck, which may leak
    pages of the KV cache, and nothing else.
    """

    def __init__(
        self, target: Qwen35Target, oracle: Oracle, backend: FailingBackend | None
    ) -> None:
        self.target, self.oracle, self.backend = target, oracle, backend
        self.accounts: list[Account] = []
        self.interrupted = False
        self.trouble = Trouble()
        self._adapters: dict[AdapterSpec, Adapter] = {}
        self._closed_rounds = 0

    @property
    def rounds(self) -> int:
        return self._closed_rounds + sum(a.watcher.rounds for a in self.accounts)

    @property
    def _device(self) -> Any:
        """The backend, where no failure is injected into what only looks on."""
        return self.target.backend if self.backend is None else self.backend.inner

    @property
    def has_room(self) -> bool:
        """Whether another session can be opened."""
        return self.target.store.has_room

    def account(self, number: int) -> Account | None:
        """A session by number, modulo how many there are."""
        return self.accounts[number % len(self.accounts)] if self.accounts else None

    # -- opening and closing -------------------------------------------------------------------

    def open(
        self, prompt: Sequence[int], spec: AdapterSpec, verifier: str, shared: bool
    ) -> Account | None:
        """A new session, or the refusal that there is no slot; None also if it failed.

        shared: with the adapter of an earlier session of the same spec.
        """
        adapter = self._adapters.get(spec) if shared else None
        if adapter is None:
            adapter = self._adapters[spec] = make_adapter(spec, self._future)
        options, prefill = self.target.options, Progress()
        watcher = Watcher(adapter, prompt, self.oracle, options, self._device.download)

        def make() -> Session:
            return Session(
                self.target,
                watcher,
                prompt,
                adapter_name="watched",
                on_prefill=prefill,
                verifier=VERIFIERS[verifier],
            )

        if not self.target.store.has_room:
            demand_refusal(CapacityError, make)
            return None
        free = self.target.store.pages.pool.free
        prefill.fails_at = self.trouble.n if self.trouble.kind == "prefill" else None
        try:
            session = make()
        except (InjectedError, CallerError, OptionError) as error:
            self._adapters.pop(spec, None)
            # a draft that can't be loaded says which adapter's it is
            struck = self.backend is not None and self.backend.failed is not None
            demand(struck or isinstance(error, CallerError), f"refused to open: {error}")
            demand(self.target.store.has_room, "a session that failed to open kept its slot")
            demand(self.target.store.pages.pool.free == free, "and pages")
            return None
        except CapacityError:
            demand(self.interrupted, "no room for a session although there is a slot")
            return None
        demand(not watcher.closed and watcher.key is not None, "open was not called")
        account = Account(session, watcher, prefill, verifier, list(prompt), floor=len(prompt))
        account.given = account.asked = len(prompt)
        account.prefilled = len(prompt) - 1
        watcher.account = account
        self.accounts.append(account)
        return account

    def _future(self, key: int, count: int) -> list[int]:
        (account,) = [a for a in self.accounts if a.watcher.key == key]
        assert account.running is not None
        return self.oracle.future(account.tokens, account.running.sampler, count)

    def close(self, account: Account, *, twice: bool = False) -> None:
        """Close the session; nothing may be done with it then."""
        session, watcher = account.session, account.watcher
        self.accounts.remove(account)
        self._closed_rounds += watcher.rounds
        session.close()
        if twice:
            session.close()
        demand(watcher.closed, "the adapter was not told that the sequence is over")
        self._raise_found(watcher)
        demand(session.sequence.phase is Phase.CLOSED, "a closed session's sequence is open")
        demand_refusal(LifecycleError, lambda: list(session.generate(Request(1, GREEDY))))
        demand_refusal(LifecycleError, lambda: session.extend([0]))
        self._check_counts(account)

    def finish(self) -> None:
        """Compare and close everything; slots and pages must be free then."""
        for account in list(self.accounts):
            if account.running is not None:
                account.running.generator.close()
                account.running = None
            self.settle(account)
            self.check()
            if not account.broken:
                self._compare(self.target.state_arrays(account.session.sequence), account)
            self.close(account)
        sequences = [self.target.open() for _ in range(self.target.options.slots)]
        for sequence in sequences:
            self.target.close(sequence)
        pool = self.target.store.pages.pool
        demand(self.interrupted or pool.free == pool.n_pages, "pages leaked")

    # -- trouble -----------------------------------------------------------------------------------

    def under(self, trouble: Trouble, account: Account | None, act: Callable[[], None]) -> None:
        """Do something while something goes wrong."""
        self.trouble = trouble
        if account is not None and trouble.kind != "none":
            self.settle(account)
        backend = self.backend
        if account is not None:
            account.trouble = trouble.kind
        try:
            if trouble.kind in CALLS and backend is not None:
                when = "before" if trouble.kind == "transfer" else trouble.when
                backend.arm(trouble.n, when, CALLS[trouble.kind])
            if trouble.kind in ("propose", "observe") and account is not None:
                account.watcher.exit_in = (trouble.kind, trouble.n)
            if trouble.kind == "interrupt" and account is not None:
                interrupted(act, trouble.n, INTERRUPTED, skip=("generate",))
            else:
                act()
        finally:
            self.trouble = Trouble()
            if backend is not None:
                backend.disarm()
            if account is not None:
                account.trouble, account.watcher.exit_in = "none", None

    def settle(self, account: Account) -> None:
        """Let the session put in order what a failure left, and see what that is."""
        if account.uncertain is None or account.running is not None:
            return
        list(account.session.generate(Request(0, GREEDY)))
        account.cancelled = False
        self.settled(account, len(account.session.tokens))

    def settled(self, account: Account, length: int) -> None:
        """The session has so many tokens, after whatever it was that failed."""
        if account.uncertain is None:
            return
        account.resolve(length)
        account.broken = account.session.sequence.phase is Phase.BROKEN
        demand(account.may_break or not account.broken, "BROKEN by what can't break a sequence")

    # -- checks ------------------------------------------------------------------------------------

    def check(self) -> None:
        """Whatever was done with one session, all of them have the text that they must have."""
        for account in self.accounts:
            self._raise_found(account.watcher)
            session, tokens = account.session, account.tokens
            text = list(session.tokens)
            demand(text == tokens[: len(text)], f"the session's text is {text}, not {tokens}")
            if account.running is not None and account.uncertain is None:
                demand(len(text) == account.floor, f"{len(text)} tokens inside of a round")
            if account.idle:
                demand(len(text) == len(tokens), f"{text} is shorter than {tokens}")
                length = session.sequence.length
                demand(length == len(tokens) - 1, f"{length} positions, {len(tokens)} tokens")
                phase = session.sequence.phase
                demand(phase in (Phase.EMPTY, Phase.CLEAN, Phase.PENDING), f"idle but {phase}")
                self._check_counts(account)

    def _check_counts(self, account: Account) -> None:
        stats, watcher = account.session.stats, account.watcher
        demand(stats.refused == watcher.refusals, f"{stats.refused} refused: {stats.refusal}")
        demand(stats.adapter_errors == watcher.errors, f"{stats.adapter_errors} adapter errors")
        emitted = sum(length * count for length, count in stats.accept_lengths.items())
        if account.inexact or account.uncertain is not None or account.running is not None:
            return
        demand(stats.prompt_tokens == account.asked, f"{stats.prompt_tokens} prompt tokens")
        demand(emitted == stats.emitted, f"{stats.emitted} tokens, {emitted} by accept lengths")
        demand(stats.prefilled == account.prefilled, f"{stats.prefilled} prefilled")
        generated = len(account.tokens) - account.given
        demand(stats.emitted == generated, f"{stats.emitted} emitted; there are {generated}")
        demand(stats.rounds == watcher.rounds, f"{stats.rounds} rounds, {watcher.rounds} observed")
        demand(stats.rows >= stats.rounds, f"{stats.rows} rows in {stats.rounds} rounds")

    def check_state(self, account: Account, how: str) -> None:
        """The committed state, byte for byte. how: "fork", "snapshot" or "own" (which flushes)."""
        self.settle(account)
        target, sequence = self.target, account.session.sequence
        if account.running is not None and sequence.phase is Phase.VERIFIED:
            demand_refusal(LifecycleError, lambda: target.fork(sequence))
            demand_refusal(LifecycleError, lambda: target.snapshot(sequence))
        if not account.idle:
            return
        if how == "fork" and target.store.has_room:
            twin = target.fork(sequence)
            self._compare(target.state_arrays(twin), account)
            self._compare_features(twin, account)
            target.close(twin)
        elif how == "snapshot":
            snapshot = target.snapshot(sequence)
            self._compare(target.state_arrays(sequence), account)
            target.restore(sequence, snapshot)
            target.store.release(snapshot)
        else:
            self._compare(target.state_arrays(sequence), account)
        self._compare_features(sequence, account)

    def _compare(self, found: dict[str, np.ndarray], account: Account) -> None:
        wanted = self.oracle.arrays(account.tokens[:-1])
        differs = difference(found, wanted)
        demand(differs == "", f"the committed state differs after {account.tokens[:-1]}: {differs}")

    def _compare_features(self, sequence: Any, account: Account) -> None:
        wanted = self.oracle.features(account.tokens[:-1])
        if wanted is not None:
            found = self.target.features(sequence, 0, len(account.tokens) - 1)
            demand(same(self._device.download(found), wanted), "features differ")

    def _raise_found(self, watcher: Watcher) -> None:
        if watcher.found is not None:
            raise watcher.found
