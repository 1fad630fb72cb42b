"""What an operation asks of a session, and what is to go wrong meanwhile, as plain values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from specla.core.sampling import Sampler, SamplingParams


class CallerError(Exception):
    """What the caller's own code raises: a processor, a rule, a listener, a consumer."""


@dataclass(frozen=True)
class Wish:
    """One generation. sampling: fields of SamplingParams.  ban: the caller's processor forbids
    every token that is this one modulo 3 (-1: no processor).  stop_at, cancel_at: the call of the
    stop rule that stops, or cancels (0: none).  rule: whether there is one.  logits: whether
    somebody listens to them.
    """

    max_tokens: int = 8
    sampling: tuple[tuple[str, Any], ...] = ()
    ban: int = -1
    budget: int = 8
    stop_ids: tuple[int, ...] = ()
    rule: bool = False
    stop_at: int = 0
    cancel_at: int = 0
    logits: bool = True

    @cached_property
    def sampler(self) -> Sampler:
        """Without anything that fails."""
        return self.failing_sampler(None)

    def failing_sampler(self, fails_at: int | None) -> Sampler:
        """fails_at: the call of a processor that raises CallerError, from 0; None: no such."""
        processors: list[Any] = [_Ban(self.ban)] if self.ban >= 0 else []
        if fails_at is not None:
            processors.append(_Fails(fails_at))
        return Sampler(SamplingParams(**dict(self.sampling)), processors)


@dataclass(frozen=True)
class Trouble:
    """What goes wrong during an operation.

    kind: "none"; "kernel", "fold", "transfer" (the n-th such call of the backend fails, ``when``:
    see FailingBackend; transfers fail before they are made); "interrupt" (at the n-th line of
    engine, verification, store and lifecycle); "processor", "logits", "rule", "prefill" (the
    caller's code raises at its n-th call); "propose", "observe" (the n-th call of the adapter's
    hook raises SystemExit).
    """

    kind: str = "none"
    n: int = 0
    when: str = "before"


@dataclass
class _Ban:
    residue: int

    def __call__(self, history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        # it is told to have a row of its own
        logits[self.residue % 3 :: 3] = -np.inf
        return logits


@dataclass
class _Fails:
    left: int

    def __call__(self, history: Sequence[int], logits: np.ndarray) -> np.ndarray:
        self.left -= 1
        if self.left < 0:
            raise CallerError("processor")
        return logits
