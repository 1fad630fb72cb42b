"""Calls that must be refused with the documented error, and change nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from specla.engine import Session
from specla.errors import CapacityError, LifecycleError, OptionError, TopologyError
from specla.fuzz.sessions.account import Account
from specla.fuzz.sessions.world import GREEDY, SessionWorld
from specla.request import Request


@dataclass(frozen=True)
class Refused:
    """call: of a session.  error: what it must raise.  busy: what comes first while a generation of
    the session is unfinished."""

    call: Callable[[SessionWorld, Account], object]
    error: type[Exception]
    busy: type[Exception]


def _extend(error: type[Exception], ids: Callable[[SessionWorld], Any]) -> Refused:
    return Refused(lambda world, at: at.session.extend(ids(world)), error, LifecycleError)


def _open(error: type[Exception], prompt: Callable[[SessionWorld], list[int]]) -> Refused:
    def call(world: SessionWorld, account: Account) -> object:
        return Session(world.target, account.watcher.inner, prompt(world))

    return Refused(call, error, error)


def _ask(**wrong: Any) -> Refused:
    return Refused(lambda world, at: replace(Request(1, GREEDY), **wrong), OptionError, OptionError)


def _too_long(world: SessionWorld) -> list[int]:
    return [1] * (world.target.options.context + 1)


def _beyond(world: SessionWorld) -> list[int]:
    return [1, world.oracle.vocab_size]


MISUSES = {
    "token beyond": _extend(TopologyError, _beyond),
    "negative token": _extend(TopologyError, lambda world: [0, -1]),
    "float token": _extend(TopologyError, lambda world: [1.0]),
    "truth value": _extend(TopologyError, lambda world: [True]),
    "no list": _extend(TopologyError, lambda world: 7),
    "text": _extend(TopologyError, lambda world: "abc"),
    "too many": _extend(CapacityError, _too_long),
    "empty prompt": _open(CapacityError, lambda world: []),
    "long prompt": _open(CapacityError, _too_long),
    "prompt beyond": _open(TopologyError, _beyond),
    "half a token": _ask(max_tokens=0.5),
    "negative budget": _ask(budget=-1),
}
