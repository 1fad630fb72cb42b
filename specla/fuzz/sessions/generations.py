"""A generation, token by token, as its consumer sees it; every event is checked when it comes."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, cast

import numpy as np

from specla.core.lifecycle import Phase
from specla.errors import BrokenSequenceError, CapacityError, LifecycleError
from specla.fuzz.demand import FoundError, demand, demand_refusal
from specla.fuzz.failing import FOLDS, InjectedError
from specla.fuzz.plain import same
from specla.fuzz.sessions.account import Account, Running
from specla.fuzz.sessions.wishes import CallerError, Wish
from specla.fuzz.sessions.world import SessionWorld
from specla.request import Request, Stop, TokenEvent

FAILURES = (
    *(InjectedError, CallerError, KeyboardInterrupt, SystemExit),
    *(BrokenSequenceError, CapacityError),
)
"""What may come out of a session that somebody makes fail."""

DURABLE = (*FOLDS, "gather", "kv_move", "feature_move")
"""Kernels of a round that may leave a sequence BROKEN when they die."""


def start(world: SessionWorld, account: Account, wish: Wish) -> None:
    """Ask for a generation; it begins with its first event. Refused while another is unfinished."""
    running = account.running
    if running is not None and running.start is not None:
        request = Request(1, wish.sampler)
        demand_refusal(LifecycleError, lambda: next(iter(account.session.generate(request))))
        return
    if running is not None:
        running.generator.close()
    trouble = world.trouble
    fails_at = trouble.n if trouble.kind == "processor" else None
    made = Running(
        generator=cast(Generator[TokenEvent, None, None], None),
        sampler=wish.sampler,
        max_tokens=wish.max_tokens,
        budget=wish.budget,
        stop_ids=frozenset(wish.stop_ids),
        stop_at=wish.stop_at,
        cancel_at=wish.cancel_at,
        has_rule=wish.rule,
        wants_logits=wish.logits,
    )
    request = Request(
        wish.max_tokens,
        wish.failing_sampler(fails_at),
        made.stop_ids,
        wish.budget,
        _rule(world, account, made) if wish.rule else None,
        _listener(world, account, made) if wish.logits else None,
    )
    made.generator = cast(Generator[TokenEvent, None, None], account.session.generate(request))
    account.running = made


def _rule(world: SessionWorld, account: Account, running: Running) -> Callable[[int], bool]:
    fails_at = world.trouble.n if world.trouble.kind == "rule" else None

    def rule(token: int) -> bool:
        if fails_at is not None and len(running.told) == fails_at:
            raise CallerError("rule")
        running.told.append(token)
        if len(running.told) == running.cancel_at:
            account.session.cancel()
            running.cancelled = True
        return len(running.told) == running.stop_at

    return rule


def _listener(
    world: SessionWorld, account: Account, running: Running
) -> Callable[[int, np.ndarray], None]:
    fails_at = world.trouble.n if world.trouble.kind == "logits" else None

    def listen(position: int, row: np.ndarray) -> None:
        if fails_at is not None and len(running.rows) == fails_at:
            raise CallerError("logits")
        world.settled(account, position)
        demand(position == len(account.tokens), f"logits of position {position}")
        demand(same(row, world.oracle.logits(account.tokens)), f"logits differ at {position}")
        running.rows.append(position)

    return listen


def advance(world: SessionWorld, account: Account) -> bool:
    """Take one event; False: there is none, or it failed."""
    running = account.running
    if running is None:
        return False
    if running.start is None:
        _begin(account, running)
    try:
        event = next(running.generator)
    except StopIteration:
        _ended(world, account, running)
        return False
    except FAILURES as error:
        _failed(world, account, running, error)
        return False
    _check_event(world, account, running, event)
    return True


def _begin(account: Account, running: Running) -> None:
    account.watcher.forget_round()
    running.cancelled |= account.cancelled
    if account.uncertain is None:
        running.start = account.floor = len(account.tokens)


def _check_event(
    world: SessionWorld, account: Account, running: Running, event: TokenEvent
) -> None:
    world.settled(account, event.position)
    if running.start is None:
        running.start = account.floor = event.position
    tokens = account.tokens
    demand(running.stop is None, f"{event} after {running.stop}")
    # a rule may cancel while it is told of a token
    told_of_it = bool(running.told) and len(running.told) == running.cancel_at
    demand(not running.cancelled or told_of_it, f"{event} after a cancellation")
    demand(event.position == len(tokens), f"{event}; the text has {len(tokens)} tokens")
    wanted = world.oracle.choice(tokens, running.sampler)
    demand(event.token == wanted, f"{event}; plain decoding writes {wanted}")
    tokens.append(event.token)
    account.may_break = False
    running.stop = event.stop
    emitted = tokens[running.start :]
    told = [token for token in emitted if token not in running.stop_ids]
    demand(not running.has_rule or running.told == told, f"the rule was told {running.told}")
    rows = list(range(running.start, len(tokens)))
    demand(not running.wants_logits or running.rows == rows, f"logits came for {running.rows}")
    stop = _wanted_stop(world, account, running, emitted)
    demand(event.stop is stop, f"{event}; the stop must be {stop}")


def _wanted_stop(
    world: SessionWorld, account: Account, running: Running, emitted: list[int]
) -> Stop | None:
    if emitted[-1] in running.stop_ids:
        return Stop.END_OF_TEXT
    if running.stop_at and len(running.told) == running.stop_at:
        return Stop.STOP_RULE
    if running.cancelled:
        return Stop.CANCELLED
    if len(emitted) == running.max_tokens:
        return Stop.MAX_TOKENS
    if len(account.tokens) - 1 >= world.target.options.context:
        return Stop.CONTEXT
    return None


def _ended(world: SessionWorld, account: Account, running: Running) -> None:
    """The generator is exhausted: there must have been a reason."""
    account.running, account.cancelled = None, False
    world.settled(account, len(account.session.tokens))
    start = len(account.tokens) if running.start is None else running.start
    stop = running.stop
    if stop is None and running.cancelled:
        stop = Stop.CANCELLED
    elif stop is None and len(account.tokens) - start >= running.max_tokens:
        stop = Stop.MAX_TOKENS
    elif stop is None and len(account.tokens) - 1 >= world.target.options.context:
        stop = Stop.CONTEXT
    demand(stop is not None, "a generation ended without a reason")
    demand(account.session.stop is stop, f"stopped by {account.session.stop}, not {stop}")
    account.floor = len(account.tokens)


def _failed(world: SessionWorld, account: Account, running: Running, error: BaseException) -> None:
    """A failure came out: what it may have left. Never text and state that disagree."""
    account.running, account.cancelled = None, False
    account.watcher.forget_round()
    if isinstance(error, BrokenSequenceError) or account.broken:
        _refused_as_broken(world, account, error)
        return
    if isinstance(error, CapacityError):
        demand(world.interrupted, f"an unexpected refusal: {error}")
    low, high = account.floor, len(account.tokens)
    if isinstance(error, (CallerError, SystemExit)):
        low = high
    elif isinstance(error, KeyboardInterrupt):
        # the last token that counts may not have reached the consumer
        if high <= world.target.options.context:
            account.tokens.append(world.oracle.choice(account.tokens, running.sampler))
            high += 1
        world.interrupted = True
    account.may_break = _may_break(world, account, error)
    account.inexact |= not isinstance(error, (CallerError, SystemExit))
    account.uncertain = (low, high)
    if running.cancelled and isinstance(error, KeyboardInterrupt):
        # whether the cancellation still waits depends on where it struck
        world.settle(account)


def _refused_as_broken(world: SessionWorld, account: Account, error: BaseException) -> None:
    world.settled(account, len(account.session.tokens))
    if not isinstance(error, BrokenSequenceError):
        # something else failed before it was refused
        world.interrupted |= isinstance(error, KeyboardInterrupt)
        return
    # the adapter may have seen the text, and so resolved it, before
    broke = account.may_break and account.session.sequence.phase is Phase.BROKEN
    demand(account.broken or broke, f"a sound session says that it is BROKEN: {error}")
    account.broken = True


def _may_break(world: SessionWorld, account: Account, error: BaseException) -> bool:
    """A replay has a snapshot to come back to; others break only while they write."""
    if account.verifier == "replay" or isinstance(error, (CallerError, SystemExit)):
        return False
    if isinstance(error, InjectedError) and world.trouble.kind != "transfer":
        failed = world.backend.failed if world.backend is not None else None
        return failed is not None and failed[0] in DURABLE
    return True


def drop(world: SessionWorld, account: Account, how: str) -> None:
    """The consumer has had enough. how: "close", "throw" (into the generator) or "forget" it."""
    running = account.running
    if running is None:
        return
    if running.start is None:
        # never begun: nothing was done, and a cancellation still waits
        running.generator.close()
        account.running = None
        return
    try:
        if how == "forget":
            running.generator = cast(Any, None)
        elif how == "throw":
            _throw(running)
        else:
            running.generator.close()
    except FAILURES as error:
        _failed(world, account, running, error)
        return
    account.running, account.cancelled = None, False
    demand(account.session.stop is running.stop, f"stop is {account.session.stop}")
    account.floor = len(account.tokens)
    account.watcher.forget_round()
    # a broken one can't have emitted anything
    phase = account.session.sequence.phase
    demand(account.broken or phase is not Phase.BROKEN, "BROKEN by closing a generator")


def _throw(running: Running) -> None:
    thrown = CallerError("the consumer's")
    try:
        running.generator.throw(thrown)
    except CallerError as error:
        demand(error is thrown, "another error came out than was thrown in")
        return
    raise FoundError("an error of the consumer was swallowed")


def close_under(world: SessionWorld, account: Account, *, go_on: bool) -> None:
    """Close a session whose generation is unfinished; then its generator, or take more of it.

    What a round has decided may still come; nothing more may be done for a closed session.
    """
    running = account.running
    account.running = None
    # a round that was not settled is counted nowhere
    account.inexact |= running is not None
    world.close(account)
    if running is None:
        return
    if not go_on:
        running.generator.close()
        return
    try:
        for event in running.generator:
            wanted = world.oracle.choice(account.tokens, running.sampler)
            demand(event.token == wanted, f"{event} after the close; plain: {wanted}")
            account.tokens.append(event.token)
    except LifecycleError:
        pass
    if account.watcher.found is not None:
        raise account.watcher.found
