"""Failures at every place: each kernel of a pass, each line of the bookkeeping, each transfer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from support.setup import make_driver

from specla.backends import plans
from specla.core import lifecycle
from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.fuzz.failing import KERNELS, TRANSFERS, InjectedError
from specla.fuzz.interrupts import interrupted
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.lifecycle.texts import Failure, Text
from specla.fuzz.plain import difference
from specla.models import pages, store

pytestmark = pytest.mark.usefixtures("backend_name")

TREE = Tree.build([3, 7, 8, 9, 4], [-1, 0, 0, 2, 2])
NEXT = Tree.build([5, 6, 7], [-1, 0, 0])
PROMPT = tuple(range(10, 16))


def pending(driver: Driver) -> Text:
    """A sequence with two gathered factors pending."""
    text = driver.open()
    assert text is not None
    driver.prefill([(text, PROMPT)])
    driver.verify([(text, TREE)])
    driver.commit(text, (0, 2, 4))
    return text


def kernel_calls(operation: Callable[[Driver, Text], Any]) -> int:
    driver = make_driver(8)
    text = pending(driver)
    before = driver.backend.calls
    operation(driver, text)
    return driver.backend.calls - before


def verify(driver: Driver, text: Text, failure: Failure | None = None) -> bool:
    return driver.verify([(text, NEXT)], failure)


def flush(driver: Driver, text: Text, failure: Failure | None = None) -> bool:
    return driver.flush(text, failure)


@pytest.mark.parametrize("when", ["before", "wreck"])
@pytest.mark.parametrize("operation", [verify, flush])
def test_a_failure_at_each_kernel(operation: Any, when: str) -> None:
    total = kernel_calls(operation)
    broken = 0
    driver = make_driver(8)
    for n in range(total):
        text = pending(driver)
        saved = driver.snapshot(text)
        assert saved is not None
        assert not operation(driver, text, Failure(n, when))
        if text.broken:
            broken += 1
            driver.restore(text, saved)
        # twice the same, then a retry: the driver checks what each layer is told to fold
        elif not operation(driver, text, Failure(n, "before")) and text.broken:
            driver.restore(text, saved)
        driver.check_state(text)
        assert verify(driver, text)
        driver.commit(text, (0, 2))
        driver.check_state(text)
        driver.release(saved)
        driver.close(text)
    # two GDN layers, a window and a state each
    assert broken == 4
    driver.close_all()


def test_one_broken_sequence_does_not_break_its_neighbour() -> None:
    driver = make_driver(8)
    old, new = pending(driver), driver.open()
    assert new is not None
    driver.prefill([(new, (1, 2))])
    assert not driver.verify([(old, NEXT), (new, TREE)], Failure(0, "wreck", ("gdn_verify",)))
    assert old.phase is Phase.BROKEN and new.phase is Phase.CLEAN
    driver.check_state(new)
    assert driver.verify([(new, TREE)])
    driver.commit(new, (0, 2, 3))
    driver.check_state(new)
    # the slot of a broken sequence is good for the next text
    driver.close(old)
    again = driver.open()
    assert again is not None and again.sequence.slot == old.sequence.slot
    driver.prefill([(again, (1, 2, 3))])
    driver.check_state(again)
    driver.close_all()


@pytest.mark.parametrize("when", ["before", "after", "wreck"])
def test_a_prefill_flushes_one_sequence_after_the_other(when: str) -> None:
    """A fold that dies in the first one's flush says nothing about the second."""
    driver = make_driver(8, slots=3)
    first, second = pending(driver), pending(driver)
    assert not driver.prefill([(first, (1, 2)), (second, (3,))], Failure(0, when))
    assert first.phase is Phase.BROKEN and second.phase is Phase.PENDING
    assert driver.prefill([(second, (3,))])
    driver.close_all()


@pytest.mark.parametrize(
    "failure",
    [
        Failure(0, "wreck", ("conv_prefill",)),
        Failure(1, "wreck", ("gdn_prefill",)),
        Failure(0, "before", ("embed",)),
        Failure(8, "before", ("rms_norm",)),  # after all layers, before the logits
    ],
)
def test_a_prefill_that_dies_breaks(failure: Failure) -> None:
    driver = make_driver(8)
    text = driver.open()
    assert text is not None
    driver.prefill([(text, PROMPT)])
    saved = driver.snapshot(text)
    assert saved is not None
    assert not driver.prefill([(text, (1, 2))], failure)
    assert text.phase is Phase.BROKEN
    driver.restore(text, saved)
    assert driver.prefill([(text, (1, 2))])
    driver.check_state(text)


# -- the bookkeeping itself ----------------------------------------------------------------------

OPERATIONS: dict[str, Callable[[Driver, Text], Any]] = {
    "verify": lambda d, t: d.target.verify([(t.sequence, NEXT)]),
    "flush": lambda d, t: d.target.flush(t.sequence),
    "prefill": lambda d, t: d.target.prefill([(t.sequence, (1, 2))]),
    "fork": lambda d, t: d.target.close(d.target.fork(t.sequence)),
    "snapshot": lambda d, t: d.target.store.release(d.target.snapshot(t.sequence)),
    "restore": lambda d, t: d.target.restore(t.sequence, d.saved[0].snapshot),
    "commit": lambda d, t: d.target.commit(t.sequence, (0, 2)),
    "rotate": lambda d, t: d.target.commit(t.sequence, (0, 1)),
}
FILES = (store.__file__, pages.__file__, plans.__file__, lifecycle.__file__)


def check_after(driver: Driver, text: Text, tokens: dict[int, tuple[int, ...]]) -> None:
    """Whatever an interrupted operation left: right bytes, or BROKEN and refused."""
    sequence, target = text.sequence, driver.target
    if sequence.phase is Phase.BROKEN and not driver.saved:
        return
    if sequence.phase is Phase.BROKEN:
        target.restore(sequence, driver.saved[0].snapshot)
    if sequence.phase is Phase.VERIFIED:
        target.discard(sequence)
    text.tokens = tokens[sequence.length]
    target.verify([(sequence, TREE)])
    target.commit(sequence, (0, 2, 3))
    text.tokens += (3, 8, 9)
    assert difference(target.state_arrays(sequence), driver.plain.after(text.tokens).arrays) == ""


def check_holders(driver: Driver) -> None:
    """No page has fewer references than holders; more would be a leak, less a shared write."""
    held = Counter(page for text in driver.texts for page in text.sequence.pages)
    held.update(page for saved in driver.saved for page in saved.snapshot.pages)
    references = driver.target.store.pages.pool._references
    assert all(references[page] >= count for page, count in held.items())


def staged(name: str) -> tuple[Driver, Text, Text, dict[int, tuple[int, ...]]]:
    """A sequence with pending factors that shares its page with a twin, ready for an operation;
    and the tokens it may have afterwards, by length."""
    driver = make_driver(8, pattern="ga")
    text = pending(driver)
    twin = driver.fork(text)
    assert twin is not None
    tokens = {len(text.tokens): text.tokens}
    if name in ("commit", "rotate"):
        driver.verify([(text, NEXT)])
        tokens[len(text.tokens) + 2] = text.tokens + ((5, 7) if name == "commit" else (5, 6))
    if name == "prefill":
        tokens[len(text.tokens) + 2] = (*text.tokens, 1, 2)
    if name == "restore":
        driver.snapshot(text)
    return driver, text, twin, tokens


@pytest.mark.parametrize("name", list(OPERATIONS))
def test_an_interrupt_at_any_line(name: str) -> None:
    """Ctrl-C between any two lines: never silently wrong, for this text or its twin."""
    # long ones in strides that fall on other lines in each layer
    at, stride = 0, 3 if name in ("prefill", "fork", "flush") else 1
    while True:
        at += stride
        driver, text, twin, tokens = staged(name)
        if not interrupted(lambda d=driver, t=text: OPERATIONS[name](d, t), at, FILES):
            break
        check_holders(driver)
        check_after(driver, text, tokens)
        check_holders(driver)
        check_after(driver, twin, {len(twin.tokens): twin.tokens})
    assert at > 10


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_a_failure_of_each_transfer(name: str, when: str) -> None:
    n = -1
    while True:
        n += 1
        driver, text, twin, tokens = staged(name)
        driver.backend.arm(n, when, TRANSFERS)
        try:
            OPERATIONS[name](driver, text)
        except InjectedError:
            driver.backend.disarm()
        else:
            driver.backend.disarm()
            break
        check_after(driver, text, tokens)
        # the twin may be closed: what it shared must then belong to the text alone
        driver.target.close(twin.sequence)
        fresh = driver.target.open()
        driver.target.prefill([(fresh, (9, 9, 9))])
        wanted = driver.plain.after((9, 9, 9)).arrays
        assert difference(driver.target.state_arrays(fresh), wanted) == ""
        if text.sequence.phase is not Phase.BROKEN:
            found = driver.target.state_arrays(text.sequence)
            assert difference(found, driver.plain.after(text.tokens).arrays) == ""
    assert n > 0 or name == "rotate"


def test_every_kernel_is_known_to_the_failing_backend() -> None:
    from specla.backends.base import Backend

    known = set(Backend.__abstractmethods__) | {"download_all"}
    assert known - {"empty", "zeros", "poison", "load"} == {*KERNELS, *TRANSFERS}
