"""Plans of a drafter's two kinds of steps, in buffers on the device that stay where they are.

So recorded steps need no new arguments: one upload of integers per step changes them all.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends.base import Backend
from specla.core.plan import StepPlan
from specla.models.dflash.sight import SightPair

Int32 = npt.NDArray[np.int32]


class AppendPlans:
    """Plans for taking up to ``most`` positions into the context of one sequence."""

    def __init__(self, backend: Backend, most: int) -> None:
        self._backend = backend
        # the slot, then the positions, which are the cache rows as well
        self._words = backend.empty((1 + most,), "int32")
        self._zeros = backend.zeros((most,), "int32")
        self._plans: dict[int, tuple[StepPlan, StepPlan]] = {}

    def fill(self, slot: int, start: int, count: int) -> tuple[StepPlan, StepPlan]:
        """The plan for positions start .. start + count - 1, and its shape for a step runner."""
        words = np.arange(start - 1, start + count, dtype=np.int32)
        words[0] = slot
        self._backend.upload(words, into=self._words)
        if count not in self._plans:
            plan = self._plan(count)
            self._plans[count] = plan, _without_arrays(plan)
        return self._plans[count]

    def _plan(self, count: int) -> StepPlan:
        view = self._backend.view
        position = view(self._words, slice(1, 1 + count))
        slot, zeros = view(self._words, slice(1)), view(self._zeros, slice(count))
        return _plan(self._backend, zeros, slot, position, kv_row=position)


@dataclass(frozen=True)
class _Part:
    """Where a sight's numbers lie in the buffer of a :class:`BlockPlans`."""

    committed: int
    position: int
    path_start: int
    paths: int


class BlockPlans:
    """The plan of a block of B slots after the context of one sequence.

    shape: for a step runner.  position: int32 [B], the slots' own positions.  block: the plan for
    everything but attention.  of_layer: per layer the plan that tells attention what it sees.
    """

    def __init__(self, backend: Backend, sights: SightPair, context: int) -> None:
        self._backend, self._sights = backend, sights
        slots = sights.slots
        at, self._parts = 1 + 2 * slots, {}
        for kind in sights.kinds:
            self._parts[kind] = _Part(at, at + 1, at + 1 + slots, at + 1 + 2 * slots)
            # the last one's paths may be long; a full layer's are the block itself
            at += 1 + 3 * slots
        self._words = backend.empty((at + sights.longest_path(context),), "int32")
        view, words = backend.view, self._words
        slot, tokens = view(words, slice(1)), view(words, slice(1, 1 + slots))
        self.position = view(words, slice(1 + slots, 1 + 2 * slots))
        zeros = backend.zeros((slots,), "int32")
        self.block = _plan(backend, zeros, slot, self.position, kv_row=self.position, tokens=tokens)
        self.shape = _without_arrays(self.block)
        kinds = {kind: self._seeing(kind, slot, zeros) for kind in sights.kinds}
        self.of_layer = [kinds[kind] for kind in sights.config.sliding]

    def launched_for(self, n_keys: int) -> tuple[StepPlan, list[StepPlan]]:
        """``shape`` and ``of_layer`` for attention over ``n_keys`` positions, 0 for all."""
        if not n_keys:
            return self.shape, self.of_layer
        layers = [replace(plan, n_keys=n_keys) for plan in self.of_layer]
        return replace(self.shape, n_keys=n_keys), layers

    def fill(self, slot: int, length: int, tokens: Int32) -> None:
        """For tokens [B] after ``length`` committed positions of the sequence in ``slot``."""
        slots = self._sights.slots
        position = np.arange(length, length + slots, dtype=np.int32)
        pieces = [np.array([slot], dtype=np.int32), tokens, position]
        for kind in self._sights.kinds:
            sight = self._sights.of(kind, length)
            pieces += [np.array([sight.committed], dtype=np.int32), sight.position]
            pieces += [sight.path_start, sight.paths]
        self._backend.upload(np.concatenate(pieces), into=self._words)

    def _seeing(self, kind: bool, slot: Any, zeros: Any) -> StepPlan:
        view, words, slots = self._backend.view, self._words, self._sights.slots
        part = self._parts[kind]
        last = kind == self._sights.kinds[-1]
        chains = self._sights.chains(kind)
        upload = self._backend.upload
        return _plan(
            self._backend,
            zeros,
            slot,
            view(words, slice(part.position, part.position + slots)),
            kv_row=self.position,
            path_start=view(words, slice(part.path_start, part.path_start + slots)),
            paths=view(words, slice(part.paths, None if last else part.paths + slots)),
            committed=view(words, slice(part.committed, part.committed + 1)),
            chain_rows=upload(np.arange(slots, dtype=np.int32)),
            chain_offset=upload(np.linspace(0, slots, chains + 1).astype(np.int32)),
            chain_sequence=upload(np.zeros(chains, dtype=np.int32)),
        )


def _without_arrays(plan: StepPlan) -> StepPlan:
    """For a step runner: the plan's arrays never change places, so there is nothing to exchange."""
    nothing: dict[str, Any] = {field.name: None for field in fields(StepPlan)}
    sizes = {name: getattr(plan, name) for name in ("n_rows", "n_sequences", "n_keys")}
    return StepPlan(**(nothing | sizes))


def _plan(backend: Backend, zeros: Any, slot: Any, position: Any, **arrays: Any) -> StepPlan:
    """A plan of one sequence; arrays that no kernel of a drafter reads are ``zeros``."""
    n_rows = position.shape[0]
    every = {field.name: zeros for field in fields(StepPlan)} | {
        "slot": slot,
        "sequence": zeros,
        "position": position,
        "row_offset": backend.upload(np.array([0, n_rows], dtype=np.int32)),
        # one chain: what is said of chains and waves, no kernel of a drafter reads
        "counts": backend.upload(np.array([n_rows, 1, 1, 1], dtype=np.int32)),
        "n_rows": n_rows,
        "n_sequences": 1,
        "n_keys": 0,
    }
    return StepPlan(**(every | arrays))
