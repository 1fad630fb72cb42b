"""The bug zoo: failures in the middle of a step (docs/bug-zoo.md)."""

from __future__ import annotations

import pytest
from support.setup import make_driver
from zoo.zoo_driver import play, started

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.errors import BrokenSequenceError
from specla.fuzz.failing import InjectedError
from specla.fuzz.lifecycle.texts import Failure

pytestmark = pytest.mark.usefixtures("backend_name")

BUSH = Tree.build([9, 8, 7, 6, 5, 4], [-1, 0, 0, 1, 2, 2])


@pytest.mark.parametrize("then", ["verify", "flush", "prefill"])
@pytest.mark.parametrize("folded", [1, 2, 3])
def test_lucebox_a_failure_between_layers_folds_each_layer_once(folded: int, then: str) -> None:
    """lucebox: no flush on an error inside the loop, so that the durable state might stay
    half-updated across layers. Here every layer knows what it has folded, and the next operation
    folds the rest."""
    driver = make_driver(17, pattern="ggg")
    text = started(driver)
    play(driver, text, BUSH, (0, 2, 4))
    assert not driver.verify([(text, BUSH)], Failure(folded - 1, "before", ("swiglu",)))
    assert text.phase is (Phase.PENDING if folded < 3 else Phase.CLEAN)
    if then == "verify":
        play(driver, text, BUSH, (0, 1))
    elif then == "flush":
        driver.flush(text)
    else:
        driver.prefill([(text, (1, 2))])
    driver.check_state(text)
    driver.close_all()


@pytest.mark.parametrize("kernel", ["conv_verify", "gdn_verify"])
def test_lucebox_a_half_written_state_is_never_used(kernel: str) -> None:
    """The same, inside a write: re-prefilling was the only remedy. Here the sequence says that it
    is broken, and a snapshot brings it back."""
    driver = make_driver(17)
    text = started(driver)
    play(driver, text, BUSH, (0, 2, 4))
    saved = driver.snapshot(text)
    assert saved is not None
    assert not driver.verify([(text, BUSH)], Failure(1, "wreck", (kernel,)))
    assert text.phase is Phase.BROKEN
    with pytest.raises(BrokenSequenceError):
        driver.target.flush(text.sequence)
    driver.restore(text, saved)
    play(driver, text, BUSH, (0, 1, 3))
    driver.check_state(text)
    driver.close_all()


@pytest.mark.parametrize("kernel", ["gather", "kv_move", "feature_move"])
def test_lucebox_a_copy_that_fails_is_not_ignored(kernel: str) -> None:
    """lucebox: the return codes of several copies of a commit were ignored."""
    driver = make_driver(17, features=(0,))
    text = started(driver)
    saved = driver.snapshot(text)
    assert saved is not None and driver.verify([(text, BUSH)])
    driver.backend.arm(0, "before", (kernel,))
    with pytest.raises(InjectedError):
        driver.target.commit(text.sequence, (0, 2, 5))
    driver.backend.disarm()
    assert text.sequence.phase is Phase.BROKEN
    driver.restore(text, saved)
    play(driver, text, BUSH, (0, 2, 5))
    driver.check_state(text)
    driver.close_all()


def test_lucebox_all_rows_of_a_commit_move_in_one_call() -> None:
    """lucebox: a commit was one copy per node, layer, head, key and value, and waited for the
    device each time. Here it is one call for all of that and for all sequences."""
    driver = make_driver(17, pattern="gagaga", features=(0, 2))
    texts = [started(driver) for _ in range(3)]
    assert driver.verify([(text, BUSH) for text in texts])
    before = driver.backend.calls
    assert driver.commit_all([(text, (0, 2, 5)) for text in texts])
    assert driver.backend.calls - before == 3, "gather, kv_move, feature_move"
    for text in texts:
        driver.check_state(text)
    driver.close_all()
