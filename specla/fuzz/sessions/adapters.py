"""The adapters under test: hostile ones, made from a name and a few numbers, and the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specla.adapters.base import Adapter, TargetInfo, create_adapter
from specla.core.proposal import Outcome, Proposal, SequenceView
from specla.fuzz.sessions.bad_proposals import BAD
from specla.fuzz.sessions.proposals import HANDED, SOUND, Claim, Moment
from specla.models.load import bundled_drafter, bundled_model

MIX = "mix"
"""Another kind of proposal in every round, sound or bad."""

Future = Callable[[int, int], list[int]]
"""(key of a sequence, count) -> what plain decoding writes next in it."""


@dataclass(frozen=True)
class AdapterSpec:
    """kind: MIX, a kind of proposal (SOUND or BAD), or an adapter expression (REAL).

    seed, error, branch, depth: see Moment.  raises: hooks that raise, of open, observe and close.
    """

    kind: str = "tree"
    seed: int = 0
    error: int = 0
    branch: int = 2
    depth: int = 4
    raises: tuple[str, ...] = ()


def _drafted(**more: str) -> dict[str, str]:
    return {"draft": str(bundled_drafter()), **more}


REAL: dict[str, Callable[[], dict[str, str]]] = {
    "none": dict,
    "ngram": dict,
    "suffix": dict,
    "adaptive(suffix)": dict,
    "fallback(suffix, ngram)": dict,
    "dspark": _drafted,
    "ddtree": _drafted,
    "adaptive(dspark)": _drafted,
    "fallback(suffix, ddtree)": _drafted,
    "chain": lambda: {"draft": str(bundled_model())},
}
"""Expressions, and the options that they need. Those with a draft fit the bundled model only."""

DRAFTED = tuple(name for name, options in REAL.items() if options is not dict)
"""Real adapters that run a draft model."""


def make_adapter(spec: AdapterSpec, future: Future) -> Adapter:
    """A fresh adapter. future: for hostile ones."""
    if spec.kind in REAL:
        return create_adapter(spec.kind, REAL[spec.kind]())
    return HostileAdapter(spec, future)


class HostileAdapter(Adapter):
    """Proposes whatever its spec says, something else each time, and spoils what it returned.

    claim: the sound tree that it proposed last, None where its proposal must be refused.
    fault: why a sound one couldn't be made, which never happens.
    """

    deterministic = False

    def __init__(self, spec: AdapterSpec, future: Future) -> None:
        super().__init__()
        self.claim: Claim | None = None
        self.fault: str | None = None
        self._spec, self._future = spec, future
        self._rng = np.random.default_rng(spec.seed)
        self._returned: list[tuple[list[int], list[int]]] = []

    def bind(self, target: TargetInfo) -> None:
        self._vocab_size = target.vocab_size

    def open(self, view: SequenceView) -> None:
        self._raise("open")

    def propose(self, views: Sequence[SequenceView]) -> list[Proposal]:
        (view,) = views
        self._spoil()
        self.claim = None
        moment = Moment(
            view,
            self._rng,
            lambda count: self._future(view.key, count),
            self._vocab_size,
            self._spec.error,
            self._spec.branch,
            self._spec.depth,
        )
        kind = self._kind()
        if kind in BAD:
            answer: list[Proposal] = BAD[kind](moment)
            return answer
        try:
            tokens, parents = SOUND[kind](moment)
        except Exception as error:
            # a defect of this file's own, which must not pass for a refusal
            self.fault = f"{kind}: {type(error).__name__}: {error}"
            raise
        self.claim = Claim(tuple(tokens), tuple(parents))
        self._returned.append((tokens, parents))
        return [HANDED[int(self._rng.integers(len(HANDED)))](tokens, parents)]

    def observe(self, views: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self._spoil()
        self._raise("observe")

    def close(self, view: SequenceView) -> None:
        self._raise("close")

    def _kind(self) -> str:
        if self._spec.kind != MIX:
            return self._spec.kind
        # three of four sound
        kinds: list[Any] = list(SOUND) if self._rng.integers(4) else list(BAD)
        return str(kinds[int(self._rng.integers(len(kinds)))])

    def _spoil(self) -> None:
        """Write to lists that were returned in earlier rounds."""
        for tokens, parents in self._returned:
            tokens[:], parents[:] = [-7] * 99, [99] * 99
        self._returned.clear()

    def _raise(self, hook: str) -> None:
        if hook in self._spec.raises:
            raise ZeroDivisionError(hook)
