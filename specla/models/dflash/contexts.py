"""Where the context keys and values of each sequence lie.

They are a function of the committed tokens, so they are computed once and only appended to. The
block's own rows lie behind them and are overwritten by the next block or the next append: a
rejected draft leaves nothing to be undone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specla.backends.base import Backend
from specla.backends.pools import KvPool, KvShape
from specla.core.proposal import SequenceView

NO_TOKEN = -1


@dataclass
class Context:
    """One sequence's context: a slot of a pool, and how many positions are in it.

    pool_index: which pool.  tail: the token at its last position.
    """

    pool_index: int
    pool: KvPool
    slot: int
    length: int = 0
    tail: int = NO_TOKEN

    def agree(self, view: SequenceView) -> None:
        """Start again where the sequence is not the one that was taken up, or shorter.

        Only the last position's token is compared: under one key a text grows at its end.
        """
        beyond = self.length > len(view.tokens) - 1
        if beyond or (self.length and view.tokens[self.length - 1] != self.tail):
            self.length, self.tail = 0, NO_TOKEN

    def advance(self, view: SequenceView, length: int) -> None:
        """All positions below ``length`` are in the cache."""
        self.tail = view.tokens[length - 1]
        self.length = length


class Contexts:
    """The contexts of all open sequences, by key. Pools are added as sequences need them."""

    def __init__(self, backend: Backend, shape: KvShape, *, poison: bool) -> None:
        self._backend, self._poison, self._shape = backend, poison, shape
        self._pools: list[KvPool] = []
        self._free: list[Context] = []
        self._open: dict[int, Context] = {}

    def of(self, key: int) -> Context:
        """The context of a sequence, empty if it is new."""
        if key not in self._open:
            if not self._free:
                self._add_pool()
            # an interrupt between these lines can lose a slot, but never give it to two
            context = self._free.pop()
            context.length, context.tail = 0, NO_TOKEN
            self._open[key] = context
        return self._open[key]

    def close(self, key: int) -> None:
        """Give a sequence's slot back, if it has one."""
        context = self._open.pop(key, None)
        if context is not None:
            self._free.append(context)

    def _add_pool(self) -> None:
        shape = self._shape
        pool = self._backend.kv_pool(shape)
        if self._poison:
            self._backend.poison(pool.key)
            self._backend.poison(pool.value)
        table = np.arange(shape.pages, dtype=np.int32).reshape(shape.slots, -1)
        self._backend.upload(table, into=pool.page_table)
        index = len(self._pools)
        self._pools.append(pool)
        self._free += [Context(index, pool, slot) for slot in reversed(range(shape.slots))]
