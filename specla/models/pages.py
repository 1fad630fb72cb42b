"""Which pages of the KV cache a sequence holds, and who may write them."""

from __future__ import annotations

import numpy as np

from specla.backends.base import Backend
from specla.backends.pools import KvPool
from specla.core.paging import PAGE, PagePool, pages_for
from specla.errors import CapacityError
from specla.models.sequence import Sequence


class PagedCache:
    """The pages of one KV pool. poison: fill freed pages with NaN, for tests."""

    def __init__(self, backend: Backend, kv: KvPool, *, poison: bool) -> None:
        self.kv = kv
        self.pool = PagePool(kv.shape.pages)
        self.backend = backend
        self._poison = poison

    def release(self, pages: list[int]) -> None:
        """One holder less for each page."""
        for page in self.pool.release(pages):
            if self._poison:
                self.backend.poison(self.kv.key, (slice(None), page))
                self.backend.poison(self.kv.value, (slice(None), page))

    def reserve(self, sequence: Sequence, rows: int) -> None:
        """Make cache rows ``length .. length + rows - 1`` writable by this sequence alone.

        Raises CapacityError, with nothing changed, when they don't fit.
        """
        first, last = sequence.length, sequence.length + rows
        if last > self.kv.shape.context:
            raise CapacityError(
                f"{last} positions don't fit the cache of {self.kv.shape.context}; "
                f"raise the context size"
            )
        pages = list(sequence.pages)
        in_reach = range(first // PAGE, min(len(pages), pages_for(last)))
        shared = [i for i in in_reach if self.pool.is_shared(pages[i])]
        n_new = max(pages_for(last) - len(pages), 0)
        if shared or n_new:
            fresh = self.pool.take(len(shared) + n_new)
            try:
                for i, page in zip(shared, fresh, strict=False):
                    self._copy_page(pages[i], page)
                    pages[i] = page
            except BaseException:
                self.pool.release(fresh)
                raise
            self.switch(sequence, pages + fresh[len(shared) :])
        if sequence.table_stale:
            self._upload_page_table(sequence)
            sequence.table_stale = False

    def switch(self, sequence: Sequence, pages: list[int]) -> None:
        """Hold ``pages``, references to which have been taken, instead of the present ones.

        In this order a failure between two lines can leak a page, but never leave one with two
        writers or the device with an old table.
        """
        dropped = [page for page in sequence.pages if page not in pages]
        sequence.table_stale = True
        sequence.pages = pages
        self.release(dropped)

    def _copy_page(self, source: int, target: int) -> None:
        everything = slice(None)
        for cache in (self.kv.key, self.kv.value):
            self.backend.copy(cache, (everything, target), cache, (everything, source))

    def _upload_page_table(self, sequence: Sequence) -> None:
        table = np.full((1, self.kv.shape.pages_per_slot), -1, dtype=np.int32)
        table[0, : len(sequence.pages)] = sequence.pages
        row = self.backend.row(self.kv.page_table, sequence.slot)
        self.backend.upload(table, into=row)

    def adopt(self, sequence: Sequence, pages: list[int]) -> None:
        """Hold ``pages`` together with their present holders, instead of its own."""
        self.pool.share(pages)
        before = sequence.pages
        sequence.table_stale = True
        sequence.pages = list(pages)
        # all of them: a page that is also adopted was shared once more above
        self.release(before)
