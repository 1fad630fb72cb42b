"""Every operation in every phase; epochs that fold each layer once; failures that say BROKEN."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specla.core.banks import Banks
from specla.core.lifecycle import Ledger, LedgerState, Phase
from specla.core.topology import Tree
from specla.errors import BrokenSequenceError, LifecycleError, TopologyError
from specla.fuzz.interrupts import interrupted

LAYERS = 3
TREE = Tree.build([1, 2, 3, 4], [-1, 0, 0, 2])


def fold_all(ledger: Ledger) -> None:
    for layer in range(LAYERS):
        with ledger.folding_window(layer):
            pass
        with ledger.folding_state(layer):
            pass


def verify(ledger: Ledger, tree: Tree = TREE) -> None:
    ledger.begin_verify()
    fold_all(ledger)
    ledger.end_verify(tree)


def commit(ledger: Ledger, path: Any = (0, 2)) -> None:
    move = ledger.plan_commit(path)
    with ledger.writing("a commit"):
        ledger.end_commit(move)


def prefill(ledger: Ledger, n: int = 5) -> None:
    ledger.begin_prefill()
    ledger.end_prefill(n)


def flush(ledger: Ledger) -> None:
    if ledger.begin_flush():
        fold_all(ledger)
        ledger.end_flush()


SAVED = LedgerState(4, Banks(1, 0), 2, (2,) * LAYERS, (2,) * LAYERS)


def restore(ledger: Ledger, state: LedgerState = SAVED) -> None:
    ledger.begin_load()
    ledger.end_load(state)


def break_it(ledger: Ledger) -> None:
    with pytest.raises(RuntimeError), ledger.writing("a test"):
        raise RuntimeError


def make(phase: Phase) -> Ledger:
    """A ledger brought to a phase by legal operations."""
    ledger = Ledger(3, LAYERS)
    if phase is Phase.EMPTY:
        return ledger
    prefill(ledger)
    if phase in (Phase.PENDING, Phase.VERIFIED):
        verify(ledger)
    if phase is Phase.PENDING:
        commit(ledger)
    if phase is Phase.BROKEN:
        break_it(ledger)
    if phase is Phase.CLOSED:
        ledger.close()
    assert ledger.phase is phase
    return ledger


OPERATIONS: dict[str, Callable[[Ledger], Any]] = {
    "prefill": prefill,
    "verify": verify,
    "commit": commit,
    "discard": Ledger.discard,
    "flush": flush,
    "snapshot": Ledger.save,
    "restore": restore,
    "close": Ledger.close,
}

# operation: phase before -> phase after; a phase that is missing refuses
AFTER = {
    "prefill": {"empty": "clean", "clean": "clean"},
    "verify": dict.fromkeys(("empty", "clean", "pending", "verified"), "verified"),
    "commit": {"verified": "pending"},
    "discard": {"verified": "clean"},
    "flush": {"empty": "empty", "clean": "clean", "pending": "clean"},
    "snapshot": {p: p for p in ("empty", "clean", "pending")},
    "restore": dict.fromkeys(("empty", "clean", "pending", "verified", "broken"), "clean"),
    "close": dict.fromkeys(("empty", "clean", "pending", "verified", "broken"), "closed"),
}


@pytest.mark.parametrize("phase", list(Phase))
@pytest.mark.parametrize("name", list(OPERATIONS))
def test_table(phase: Phase, name: str) -> None:
    ledger = make(phase)
    before = copy.deepcopy(vars(ledger))
    after = AFTER[name].get(phase.value)
    if after is not None:
        OPERATIONS[name](ledger)
        assert ledger.phase is Phase(after)
        return
    with pytest.raises(LifecycleError) as caught:
        OPERATIONS[name](ledger)
    assert vars(ledger) == before, "a refused operation changed something"
    message = str(caught.value)
    assert name in message and "slot 3" in message and "\n" not in message
    assert isinstance(caught.value, BrokenSequenceError) == (phase is Phase.BROKEN)
    if phase is Phase.BROKEN:
        assert "a test" in message and "restore() or close()" in message
    else:
        assert phase.value in message


def test_discard_of_a_first_verify_leaves_an_empty_sequence() -> None:
    ledger = Ledger(0, LAYERS)
    verify(ledger)
    ledger.discard()
    assert ledger.phase is Phase.EMPTY and ledger.length == 0


def test_lengths_and_banks() -> None:
    ledger = make(Phase.VERIFIED)
    assert (ledger.length, ledger.banks) == (5, Banks(0, 0))
    commit(ledger, (0, 1))  # a prefix: rotate
    assert (ledger.length, ledger.banks, ledger.pending_count) == (7, Banks(1, 2), 2)
    place = ledger.place()
    assert (place.slot, place.committed, place.pending_bank) == (3, 7, 1)
    assert place.pending_state == place.pending_window == (2,) * LAYERS
    verify(ledger)
    assert ledger.pending_count == 0
    assert ledger.place().pending_state == (0,) * LAYERS
    commit(ledger, (0, 2, 3))  # a gather
    assert (ledger.length, ledger.banks) == (10, Banks(1, 3))


def test_a_bad_path_changes_nothing() -> None:
    ledger = make(Phase.VERIFIED)
    before = copy.deepcopy(vars(ledger))
    for path in ((), (1,), (0, 3), (0, 9), (0, 1.0), ("0",)):
        with pytest.raises(TopologyError):
            ledger.plan_commit(path)
        assert vars(ledger) == before


def test_verify_again_folds_nothing_and_takes_the_new_tree() -> None:
    ledger = make(Phase.VERIFIED)
    assert ledger.place().pending_state == (0,) * LAYERS
    ledger.begin_verify()
    assert ledger.phase is Phase.CLEAN, "an undecided verify is gone as soon as the next begins"
    fold_all(ledger)
    ledger.end_verify(Tree.lone(9))
    with pytest.raises(TopologyError):
        ledger.plan_commit((0, 1))


@given(
    stops=st.lists(st.tuples(st.integers(0, 2 * LAYERS), st.booleans()), max_size=5),
    flush_last=st.booleans(),
)
def test_each_layer_folds_exactly_once(stops: list[tuple[int, bool]], flush_last: bool) -> None:
    """Passes that die between layers, in verify or flush, then one that doesn't."""
    ledger = make(Phase.PENDING)
    folded: list[str] = []

    def run(stop: int) -> None:
        place = ledger.place()
        for step in range(2 * LAYERS):
            if step == stop:
                raise RuntimeError("between layers")
            layer, counts = step // 2, (place.pending_window, place.pending_state)[step % 2]
            fold = (ledger.folding_window, ledger.folding_state)[step % 2]
            with fold(layer):
                if counts[layer]:
                    assert counts[layer] == 2
                    folded.append(f"{'window' if step % 2 == 0 else 'state'} {layer}")

    for stop, in_flush in stops:
        if in_flush:
            if not ledger.begin_flush():
                continue
        else:
            ledger.begin_verify()
        if stop == 2 * LAYERS:
            stop -= 1
        with pytest.raises(RuntimeError):
            run(stop)
        assert ledger.phase is Phase.PENDING
        assert ledger.length == 7
        state = ledger.save()  # a copy knows what it has folded
        restore(ledger, state)
    if flush_last:
        assert ledger.begin_flush()
        run(-1)
        ledger.end_flush()
        assert ledger.phase is Phase.CLEAN
    else:
        ledger.begin_verify()
        run(-1)
        ledger.end_verify(TREE)
    assert sorted(folded) == sorted(f"{k} {i}" for k in ("window", "state") for i in range(LAYERS))


@pytest.mark.parametrize("kind", ["folding_state", "folding_window"])
@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt, MemoryError])
def test_a_failure_inside_a_durable_write_breaks(kind: str, error: type[BaseException]) -> None:
    ledger = make(Phase.PENDING)
    with pytest.raises(error), getattr(ledger, kind)(1):
        raise error
    assert ledger.phase is Phase.BROKEN
    for operation in ("prefill", "verify", "commit", "discard", "flush", "snapshot"):
        with pytest.raises(BrokenSequenceError, match=r"layer 1"):
            OPERATIONS[operation](ledger)
    restore(ledger)
    assert ledger.phase is Phase.CLEAN and ledger.length == 4


@pytest.mark.parametrize("kind", ["folding_state", "folding_window"])
def test_a_failure_where_nothing_is_written_costs_nothing(kind: str) -> None:
    ledger = make(Phase.CLEAN)
    ledger.begin_verify()
    with pytest.raises(RuntimeError), getattr(ledger, kind)(0):
        raise RuntimeError
    assert ledger.phase is Phase.CLEAN
    # a layer that has folded already is not at risk either
    ledger = make(Phase.PENDING)
    with getattr(ledger, kind)(2):
        pass
    with pytest.raises(RuntimeError), getattr(ledger, kind)(2):
        raise RuntimeError
    assert ledger.phase is Phase.PENDING
    place = ledger.place()
    done, left = place.pending_state, place.pending_window
    if kind == "folding_window":
        done, left = left, done
    assert (done, left) == ((2, 2, 0), (2, 2, 2))


def test_a_pass_that_dies_after_the_last_fold_leaves_nothing_pending() -> None:
    ledger = make(Phase.PENDING)
    ledger.begin_verify()
    fold_all(ledger)
    assert ledger.phase is Phase.CLEAN and ledger.pending_count == 0
    prefill(ledger, 1)
    assert ledger.place().pending_state == (0,) * LAYERS


def test_an_interrupt_at_any_line_is_never_silently_wrong() -> None:
    """Raise at each line of the ledger's own code, then ask what it believes."""
    files = {Ledger.begin_verify.__code__.co_filename}

    def facts(ledger: Ledger) -> Any:
        return (ledger.length, ledger.pending_count, ledger.place(), ledger.tree is not None)

    for name, start in (
        ("verify", Phase.PENDING),
        ("flush", Phase.PENDING),
        ("commit", Phase.VERIFIED),
        ("prefill", Phase.CLEAN),
        ("discard", Phase.VERIFIED),
    ):
        before = make(start)
        after = make(start)
        OPERATIONS[name](after)
        at = 0
        while True:
            at += 1
            ledger = make(start)
            if not interrupted(lambda n=name, x=ledger: OPERATIONS[n](x), at, files):
                break
            if ledger.phase is Phase.BROKEN:
                continue
            # nothing of the text may be lost or counted twice
            assert ledger.length in (before.length, after.length)
            if name == "commit":
                assert facts(ledger) in (facts(before), facts(after)), f"line event {at}"
            elif name in ("prefill", "discard"):
                assert ledger.length == before.length or ledger.phase is after.phase
            else:
                place = ledger.place()
                assert set(place.pending_state + place.pending_window) <= {0, 2}
        assert at > 3
