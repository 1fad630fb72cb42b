"""Slots, pages, copies: what a store promises about memory, and what it refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.chosen import chosen_backend, reference
from support.tiny import VOCAB, tiny_target

from specla.core.lifecycle import Phase
from specla.core.topology import Tree
from specla.errors import CapacityError, LifecycleError, OptionError, SpeclaError, TopologyError
from specla.fuzz.failing import FailingBackend, InjectedError
from specla.fuzz.plain import PlainDecoder, difference, same
from specla.models.qwen35.target import Qwen35Target

pytestmark = pytest.mark.usefixtures("backend_name")

TREE = Tree.build([3, 7, 8, 9, 4], [-1, 0, 0, 2, 2])


def prompt(n: int) -> tuple[int, ...]:
    return tuple(i * 7 % VOCAB for i in range(n))


def filled(target: Qwen35Target, n: int) -> Any:
    sequence = target.open()
    for start in range(0, n, target.options.chunk):
        target.prefill([(sequence, prompt(n)[start : start + target.options.chunk])])
    return sequence


_plain: dict[str, PlainDecoder] = {}


def arrays_after(tokens: tuple[int, ...], **options: Any) -> dict[str, np.ndarray]:
    """What plain decoding of ``tokens`` leaves. options: of tiny_target."""
    key = repr(sorted(options.items()))
    if key not in _plain:
        _plain[key] = PlainDecoder(tiny_target(backend=reference(), **(options | {"slots": 1})))
    return _plain[key].after(tokens).arrays


def test_slots_run_out_and_come_back() -> None:
    target = tiny_target(slots=2)
    a, b = target.open(), target.open()
    assert {a.slot, b.slot} == {0, 1}
    with pytest.raises(CapacityError, match="all 2 sequence slots are in use"):
        target.open()
    with pytest.raises(CapacityError):
        target.fork(a)
    target.close(a)
    assert target.open().slot == a.slot


def test_a_recycled_slot_starts_from_zero() -> None:
    target = tiny_target(slots=1)
    old = filled(target, 70)
    target.verify([(old, TREE)])
    target.commit(old, (0, 2))  # closed with factors pending
    target.close(old)
    new = filled(target, 9)
    assert difference(target.state_arrays(new), arrays_after(prompt(9))) == ""


def test_a_closed_sequence_is_refused_everywhere() -> None:
    target = tiny_target(slots=1, features=(0,))
    old = filled(target, 5)
    snapshot = target.snapshot(old)
    target.close(old)
    new = filled(target, 6)
    before = target.state_arrays(new)
    for operation in (
        lambda: target.prefill([(old, (1,))]),
        lambda: target.verify([(old, TREE)]),
        lambda: target.commit(old, (0,)),
        lambda: target.discard(old),
        lambda: target.flush(old),
        lambda: target.fork(old),
        lambda: target.snapshot(old),
        lambda: target.restore(old, snapshot),
        lambda: target.close(old),
        lambda: target.state_arrays(old),
        lambda: target.features(old, 0, 3),
    ):
        with pytest.raises(LifecycleError, match="closed"):
            operation()
    assert difference(target.state_arrays(new), before) == ""


@pytest.mark.parametrize("pattern", ["aa", "gg", "a", "g"])
def test_models_with_layers_of_one_kind(pattern: str) -> None:
    target = tiny_target(pattern=pattern)
    sequence = filled(target, 5)
    target.verify([(sequence, TREE)])
    target.commit(sequence, (0, 2, 4))
    twin = target.fork(sequence)
    wanted = arrays_after((*prompt(5), 3, 8, 4), pattern=pattern)
    assert difference(target.state_arrays(sequence), wanted) == ""
    assert difference(target.state_arrays(twin), wanted) == ""


def test_state_arrays_of_an_empty_sequence() -> None:
    for kv, dtype in (("f16", np.float16), ("f32", np.float32)):
        target = tiny_target(kv=kv)
        arrays = target.state_arrays(target.open())
        assert arrays["key"].shape == arrays["value"].shape == (1, 0, 2, 8)
        assert arrays["key"].dtype == arrays["value"].dtype == dtype
        assert not arrays["state"].any() and not arrays["window"].any()


# -- sharing and copying pages ------------------------------------------------------------------


@pytest.mark.parametrize("length", [1, 63, 64, 65, 128])
def test_a_fork_shares_full_pages_and_copies_the_last(length: int) -> None:
    target = tiny_target(slots=2)
    one = filled(target, length)
    two = target.fork(one)
    assert two.pages == one.pages
    target.prefill([(two, (1, 2))])
    target.prefill([(one, (5,))])
    full = length // 64
    assert one.pages[:full] == two.pages[:full]
    assert not set(one.pages[full:]) & set(two.pages[full:])
    assert difference(target.state_arrays(one), arrays_after((*prompt(length), 5))) == ""
    assert difference(target.state_arrays(two), arrays_after((*prompt(length), 1, 2))) == ""
    # the pages of a closed twin are poisoned, those that are shared are not
    target.close(two)
    assert difference(target.state_arrays(one), arrays_after((*prompt(length), 5))) == ""


@pytest.mark.parametrize("n", [0, 1])
def test_a_page_that_cannot_be_copied_is_given_back(n: int) -> None:
    """n: the copy that fails, of the keys or of the values."""
    backend = FailingBackend(chosen_backend())
    target = tiny_target(backend=backend, slots=2)
    one = filled(target, 10)
    two = target.fork(one)
    pool = target.store.pages.pool
    free = pool.free
    backend.arm(n, names=("copy",))
    with pytest.raises(InjectedError):
        target.verify([(two, TREE)])
    assert pool.free == free
    backend.disarm()
    target.verify([(two, TREE)])
    target.commit(two, (0, 2))
    assert difference(target.state_arrays(two), arrays_after((*prompt(10), 3, 8))) == ""
    target.close(one)
    target.close(two)
    assert pool.free == pool.n_pages


def test_snapshots_survive_everything() -> None:
    target = tiny_target(slots=2)
    sequence = filled(target, 66)
    target.verify([(sequence, TREE)])
    target.commit(sequence, (0, 2))
    snapshot = target.snapshot(sequence)  # two factors pending
    wanted = arrays_after((*prompt(66), 3, 8))
    target.prefill([(sequence, (1, 2, 3))])
    target.close(sequence)
    other = filled(target, 100)
    for _ in range(2):  # may be restored more than once, and into another slot
        target.restore(other, snapshot)
        assert other.phase is Phase.PENDING and other.length == 68
        assert difference(target.state_arrays(other), wanted) == ""
        target.prefill([(other, (9,))])
        assert difference(target.state_arrays(other), arrays_after((*prompt(66), 3, 8, 9))) == ""
    target.store.release(snapshot)
    target.store.release(snapshot)  # twice is once: nobody else's pages are given back
    assert difference(target.state_arrays(other), arrays_after((*prompt(66), 3, 8, 9))) == ""
    with pytest.raises(LifecycleError, match="released"):
        target.restore(other, snapshot)
    target.close(other)
    pool = target.store.pages.pool
    assert pool.free == pool.n_pages


@pytest.mark.parametrize("path", [(0, 1), (0, 2)])
def test_copies_carry_what_is_pending(path: tuple[int, ...]) -> None:
    """In either bank: a prefix of the tree rotates the banks, another path is gathered."""
    target = tiny_target(slots=2)
    one = filled(target, 9)
    target.verify([(one, TREE)])
    target.commit(one, path)
    wanted = arrays_after((*prompt(9), *(TREE.tokens[node] for node in path)))
    snapshot, two = target.snapshot(one), target.fork(one)
    # both banks of the one that was copied hold something else before the copies are used
    for token in (5, 6):
        target.verify([(one, Tree.chain((token, 1, 2)))])
        target.commit(one, (0, 1))
    assert two.phase is Phase.PENDING
    assert difference(target.state_arrays(two), wanted) == ""
    target.restore(one, snapshot)
    assert difference(target.state_arrays(one), wanted) == ""


def test_a_restore_tells_the_device_its_pages() -> None:
    """Also where nobody else holds the last page, so that nothing is copied before a write."""
    target = tiny_target(slots=2)
    one, two = filled(target, 10), filled(target, 5)
    snapshot = target.snapshot(one)
    target.close(one)
    target.restore(two, snapshot)
    target.store.release(snapshot)
    target.prefill([(two, (1, 2))])
    assert difference(target.state_arrays(two), arrays_after((*prompt(10), 1, 2))) == ""


def test_features_are_copied_with_a_sequence() -> None:
    options: dict[str, Any] = {"features": (2, 0), "slots": 2}
    target = tiny_target(**options)
    one = filled(target, 20)
    target.verify([(one, TREE)])
    target.commit(one, (0, 2, 4))
    two = target.fork(one)
    target.prefill([(one, (1,))])
    snapshot = target.snapshot(two)
    target.close(one)
    three = target.open()
    target.restore(three, snapshot)
    plain = tiny_target(**options)
    judge = plain.open()
    for token in (*prompt(20), 3, 8, 4):
        plain.prefill([(judge, (token,))])
    wanted = np.array(plain.features(judge, 0, 23))
    assert wanted.shape == (23, 2, 32)
    for sequence in (two, three):
        assert same(np.array(target.features(sequence, 0, 23)), wanted)
    assert same(np.array(target.features(two, 5, 7)), wanted[5:7])
    with pytest.raises(OptionError, match=r"0\.\.23 exist"):
        target.features(two, 0, 24)
    with pytest.raises(OptionError, match="no features are captured"):
        bare = tiny_target()
        bare.features(bare.open(), 0, 0)


# -- room ------------------------------------------------------------------------------------------


def test_a_wide_tree_at_the_end_of_the_context() -> None:
    target = tiny_target(slots=1, context=66, max_nodes=65, chunk=66)
    sequence = filled(target, 64)
    flat = Tree.build(range(VOCAB), [-1] + [0] * (VOCAB - 1))
    result = target.verify([(sequence, flat)])
    assert result.logits.shape == (VOCAB, VOCAB)
    target.commit(sequence, (0, VOCAB - 1))
    assert sequence.length == 66
    with pytest.raises(CapacityError, match="67 positions don't fit the context of 66"):
        target.verify([(sequence, Tree.lone(0))])
    with pytest.raises(CapacityError, match="67 positions"):
        target.prefill([(sequence, (1,))])
    wanted = arrays_after((*prompt(64), 0, VOCAB - 1), context=66)
    assert difference(target.state_arrays(sequence), wanted) == ""


def test_a_wide_tree_reaches_into_the_next_page() -> None:
    """Its positions end before the page does, its rows don't."""
    target = tiny_target(slots=2)
    one, two = filled(target, 60), filled(target, 60)
    for sequence, first in ((one, 1), (two, 11)):
        flat = Tree.build(range(first, first + 8), [-1] + [0] * 7)
        target.verify([(sequence, flat)])
    for sequence, first in ((one, 1), (two, 11)):
        target.commit(sequence, (0, 7))
        wanted = arrays_after((*prompt(60), first, first + 7))
        assert difference(target.state_arrays(sequence), wanted) == ""


def test_a_snapshot_holds_no_more_pages_than_it_has_rows() -> None:
    """Room for a wide tree is not part of the past: one page per sequence is enough in reserve."""
    target = tiny_target(slots=1, context=66, max_nodes=65, chunk=66)
    sequence = filled(target, 64)
    # more siblings than the vocabulary has tokens: built without the check
    flat = Tree(tuple(i % VOCAB for i in range(65)), (-1, *([0] * 64)))
    target.verify([(sequence, flat)])
    target.discard(sequence)
    snapshot = target.snapshot(sequence)
    target.verify([(sequence, flat)])
    target.commit(sequence, (0, 5))
    target.restore(sequence, snapshot)
    assert difference(target.state_arrays(sequence), arrays_after(prompt(64), context=66)) == ""


def test_every_slot_full_at_once() -> None:
    target = tiny_target(slots=3, context=130, chunk=130)
    sequences = [filled(target, 125) for _ in range(3)]
    target.verify([(s, TREE) for s in sequences])
    for sequence in sequences:
        target.commit(sequence, (0, 2, 4))
    target.verify([(s, Tree.chain([1, 2])) for s in sequences])


def test_a_request_that_does_not_fit_changes_nothing() -> None:
    target = tiny_target(slots=2, context=20, chunk=16)
    one, two = filled(target, 5), filled(target, 18)
    target.verify([(one, TREE)])
    before = (one.phase, one.length, two.phase, two.length)
    chain = Tree.chain([1, 2, 3])
    for operation in (
        lambda: target.verify([(one, chain), (two, chain)]),
        lambda: target.verify([(one, chain), (one, chain)]),
        lambda: target.verify([(one, Tree.chain(range(10)))]),
        lambda: target.verify([(one, Tree((VOCAB,), (-1,)))]),
        lambda: target.prefill([(two, (1, 2, 3))]),
        lambda: target.prefill([(two, (VOCAB,))]),
        lambda: target.prefill([(two, ())]),
        lambda: target.prefill([(two, (1,)), (two, (1,))]),
        lambda: target.prefill([(two, (1,)), (one, (1,))]),
        lambda: target.commit(one, (0, 3)),
        lambda: target.store.commit_all([(one, (0,)), (one, (0,))]),
        lambda: target.store.commit_all([(one, (0,)), (two, (0,))]),
        lambda: target.verify([]),
        lambda: target.prefill([]),
    ):
        with pytest.raises(SpeclaError) as caught:
            operation()
        assert "\n" not in str(caught.value)
        assert (one.phase, one.length, two.phase, two.length) == before
    target.commit(one, (0, 2, 4))
    assert difference(target.state_arrays(one), arrays_after((*prompt(5), 3, 8, 4))) == ""
    assert difference(target.state_arrays(two), arrays_after(prompt(18))) == ""


@pytest.mark.parametrize("tokens", [(VOCAB,), (), (1.5,), tuple(range(17)), (-1,)])
def test_a_refused_prefill_leaves_pending_factors_pending(tokens: Any) -> None:
    target = tiny_target(chunk=16)
    sequence = filled(target, 5)
    target.verify([(sequence, TREE)])
    target.commit(sequence, (0, 2))
    with pytest.raises((TopologyError, CapacityError)):
        target.prefill([(sequence, tokens)])
    assert sequence.phase is Phase.PENDING


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"context": 1}, "context is 1"),
        ({"context": 2.5}, "context is 2.5"),
        ({"max_nodes": 0}, "max_nodes is 0"),
        ({"max_nodes": 5000}, "max_nodes is 5000"),
        ({"chunk": 0}, "chunk is 0"),
        ({"slots": -1}, "slots is -1"),
        ({"kv": "q4"}, "kv is 'q4'"),
        ({"features": (3,)}, "layer 3"),
        ({"features": (-1,)}, "layer -1"),
        ({"features": (1, 1)}, "twice"),
    ],
)
def test_impossible_options(options: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        tiny_target(**options)


# -- chunks and batches ----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_any_chunking_any_company_same_bytes(kind: str) -> None:
    tokens = prompt(70)
    wanted = arrays_after(tokens, kind=kind)
    for chunk in (1, 2, 7, 64, 70):
        target = tiny_target(kind=kind, chunk=2 * chunk)
        one, other = target.open(), target.open()
        target.prefill([(other, (4,))])
        for start in range(0, 70, chunk):
            piece = tokens[start : start + chunk]
            # company on either side
            batch = [(one, piece), (other, piece[:1])]
            target.prefill(batch if start % 2 else batch[::-1])
        assert difference(target.state_arrays(one), wanted) == "", f"chunks of {chunk}"


def test_argmax_top_k_and_logits_agree() -> None:
    target = tiny_target()
    sequence = filled(target, 5)
    result = target.verify([(sequence, TREE)])
    assert result.offsets == (0, 5)
    best = target.argmax(result)
    values, ids = target.top_k(result, 3)
    for row in range(5):
        logits = target.logits(result, row)
        assert logits.shape == (VOCAB,) and best[row] == np.argmax(logits) == ids[row, 0]
        assert values[row].tolist() == sorted(logits.tolist(), reverse=True)[:3]


def test_forest_of_lone_roots_is_plain_decoding() -> None:
    target = tiny_target()
    sequence = filled(target, 3)
    plain = filled(target, 3)
    for token in (5, 6, 7):
        speculative = target.logits(target.verify([(sequence, Tree.lone(token))]), 0)
        target.commit(sequence, (0,))
        result = target.prefill([(plain, (token,))], logits=True)
        assert result is not None
        assert same(target.logits(result, 0), speculative)
