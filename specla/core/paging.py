"""Pages of the KV cache: 64 positions each, shared by reference count, copied on write.

A page holds the keys and values of 64 consecutive positions, the block in which the number
contract sums attention, for all attention layers. A sequence reaches its positions through a page
table, so forks and shared prefixes copy nothing but the page that is still being written.
"""

from __future__ import annotations

from specla.errors import CapacityError

PAGE = 64


def pages_for(positions: int) -> int:
    """Pages needed for so many positions."""
    return -(-positions // PAGE)


class PagePool:
    """Free list and reference counts. Pages are reused last in, first out."""

    def __init__(self, n_pages: int) -> None:
        self.n_pages = n_pages
        self._free = list(range(n_pages - 1, -1, -1))
        self._references = [0] * n_pages

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    def take(self, count: int) -> list[int]:
        """Take ``count`` fresh pages, or none: CapacityError when there are too few."""
        if count > len(self._free):
            raise CapacityError(
                f"the KV cache needs {count} more pages of {PAGE} positions, but only "
                f"{len(self._free)} of {self.n_pages} are free; close sequences, release "
                f"snapshots or raise the context size"
            )
        pages = [self._free.pop() for _ in range(count)]
        for page in pages:
            self._references[page] = 1
        return pages

    def share(self, pages: list[int]) -> None:
        """One more holder for each page."""
        for page in pages:
            self._references[page] += 1

    def is_shared(self, page: int) -> bool:
        """Whether somebody else holds the page too, so that it must not be written."""
        return self._references[page] > 1

    def release(self, pages: list[int]) -> list[int]:
        """One holder less for each page; returns the pages that became free."""
        freed = []
        for page in pages:
            self._references[page] -= 1
            if self._references[page] == 0:
                self._free.append(page)
                freed.append(page)
        return freed
