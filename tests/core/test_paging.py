"""Pages: free list, reference counts, and what happens when they run out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.core.paging import PAGE, PagePool, pages_for
from specla.errors import CapacityError


@pytest.mark.parametrize(("positions", "pages"), [(0, 0), (1, 1), (63, 1), (64, 1), (65, 2)])
def test_pages_for(positions: int, pages: int) -> None:
    assert PAGE == 64
    assert pages_for(positions) == pages


def test_fresh_pages_come_lowest_first() -> None:
    pool = PagePool(4)
    assert pool.take(3) == [0, 1, 2]
    assert pool.free == 1


def test_too_many_takes_none() -> None:
    pool = PagePool(3)
    pool.take(1)
    with pytest.raises(CapacityError, match=r"needs 3 more pages .* only 2 of 3 are free"):
        pool.take(3)
    assert pool.free == 2
    assert pool.take(0) == []
    assert sorted(pool.take(2)) == [1, 2]


def test_shared_pages_live_until_the_last_holder_lets_go() -> None:
    pool = PagePool(2)
    pages = pool.take(2)
    assert not pool.is_shared(0)
    pool.share(pages)
    assert pool.is_shared(0) and pool.is_shared(1)
    assert pool.release([0]) == []
    assert not pool.is_shared(0) and pool.free == 0
    assert pool.release([0]) == [0]
    assert pool.free == 1
    assert pool.take(1) == [0] and not pool.is_shared(0)


@given(st.lists(st.tuples(st.sampled_from("tsr"), st.integers(0, 5)), max_size=60))
def test_against_counting(operations: list[tuple[str, int]]) -> None:
    pool = PagePool(6)
    held: list[int] = []  # one entry per holder
    for what, n in operations:
        if what == "t":
            if n > pool.free:
                with pytest.raises(CapacityError):
                    pool.take(n)
            else:
                pages = pool.take(n)
                assert not set(pages) & set(held), "a page in use was handed out"
                assert len(set(pages)) == n
                held += pages
        elif held:
            page = held[n % len(held)]
            if what == "s":
                pool.share([page])
                held.append(page)
            else:
                held.remove(page)
                assert pool.release([page]) == ([] if page in held else [page])
        assert pool.free == 6 - len(set(held))
        for page in set(held):
            assert pool.is_shared(page) == (held.count(page) > 1)
