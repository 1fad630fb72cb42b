"""The bug zoo: several sequences in a step, and what a step leaves behind (docs/bug-zoo.md)."""

from __future__ import annotations

import numpy as np
import pytest
from support.forests import paths_of, random_tree
from support.setup import make_driver, plain_decoder
from support.tiny import tiny_target
from zoo.zoo_driver import PROMPT, opened, play, started, tokens_of, wrong_rows

from specla.core.topology import Tree
from specla.errors import LifecycleError
from specla.fuzz.plain import difference

pytestmark = pytest.mark.usefixtures("backend_name")

CHAIN = Tree.chain([9, 8, 7, 6, 5])
BUSH = Tree.build([9, 8, 7, 6, 5, 4], [-1, 0, 0, 1, 2, 2])


@pytest.mark.parametrize("tree", [CHAIN, BUSH], ids=["chain", "tree"])
def test_vllm_51812_a_mixed_batch_with_a_plain_row_first(tree: Tree) -> None:
    """vllm#51812, #54928: greedy text diverged at a fixed token, for q, k and v were gathered by
    the index of speculative rows and the gates were not."""
    driver = make_driver(5)
    plain, drafted = started(driver, (1, 2)), started(driver)
    assert driver.verify([(plain, Tree.lone(7)), (drafted, tree)])
    assert driver.commit_all([(plain, (0,)), (drafted, paths_of(tree)[-1])])
    driver.check_state(plain)
    driver.check_state(drafted)
    driver.close_all()


def test_sglang_29449_a_freed_sequence_is_in_no_batch() -> None:
    """sglang#29449, #28484: a freed request was still in the verify batch, and its index, 0 by
    default, let it overwrite another request's state."""
    driver = make_driver(5)
    freed, other = started(driver), started(driver, (1, 2))
    play(driver, freed, CHAIN, (0, 1, 2))
    stale = freed.sequence
    driver.close(freed)
    heir = started(driver, (6, 7, 8))
    assert heir.sequence.slot == stale.slot
    with pytest.raises(LifecycleError, match="closed"):
        driver.target.verify([(stale, CHAIN), (other.sequence, CHAIN)])
    with pytest.raises(LifecycleError, match="closed"):
        driver.target.commit(stale, (0,))
    for text in (heir, other):
        driver.check_state(text)
        play(driver, text, BUSH, (0, 2, 4))
        driver.check_state(text)
    driver.close_all()


def test_sglang_28484_slots_recycled_under_churn() -> None:
    """The same reports: sequences come and go, in the same few slots, with work pending."""
    driver, rng = make_driver(5), np.random.default_rng(5)
    for i in range(9):
        if len(driver.texts) == 3:
            driver.close(driver.texts[int(rng.integers(3))])
        started(driver, tokens_of(i, 1 + i % 4))
        items = [(text, random_tree(rng, 5)) for text in driver.texts]
        assert driver.verify(items)
        for text, tree in items:
            driver.commit(text, paths_of(tree)[int(rng.integers(len(tree)))])
    for text in driver.texts:
        driver.check_state(text)
        # closed slots are filled with NaN, which plain decoding might be as well
        driver.flush(text)
        assert np.isfinite(driver.target.state_arrays(text.sequence)["state"]).all()
    driver.close_all()


def test_sglang_19415_nothing_is_left_of_a_larger_steps_metadata() -> None:
    """sglang#19415: illegal access, for a track mask was stale and sized for a prefill. Plans of
    all sizes, large before small, in the buffers of the one before."""
    target, plain = tiny_target(6, context=128), plain_decoder(6, context=128)
    rng, first, second = np.random.default_rng(6), opened(target), opened(target, (1, 2))
    tokens = {first: PROMPT, second: (1, 2)}
    for size in (9, 4, 7, 2, 5):
        piece = tokens_of(size, 16)
        target.prefill([(first, piece)])
        tokens[first] += piece
        trees = [random_tree(rng, size, chainlike=0.2), random_tree(rng, 10 - size)]
        items = list(zip((first, second), trees, strict=True))
        verified = target.verify(items)
        known = [(tokens[sequence], tree) for sequence, tree in items]
        assert wrong_rows(target, verified, known, plain) == []
        for sequence, tree in items:
            path = max(paths_of(tree), key=len)
            target.commit(sequence, path)
            tokens[sequence] += tuple(tree.tokens[node] for node in path)


def test_sglang_31099_where_the_length_moved_everything_was_written() -> None:
    """sglang#31099: a graph's path skipped a write while its cursor advanced, and a later request
    restored a wrong state. Recorded steps, a snapshot after each, all restored later."""
    options = {"features": (0, 2), "context": 96}
    target, plain = tiny_target(6, **options), plain_decoder(6, **options)
    sequence, tokens, saved = opened(target), PROMPT, []
    for path in ((0, 2), (0, 1, 3), (0, 2, 5), (0,), (0, 2, 4)):
        target.verify([(sequence, BUSH)])
        target.commit(sequence, path)
        tokens += tuple(BUSH.tokens[node] for node in path)
        saved.append((tokens, target.snapshot(sequence)))
    later = target.open()
    for tokens, snapshot in saved:
        target.restore(later, snapshot)
        wanted = plain.after(tokens)
        assert difference(target.state_arrays(later), wanted.arrays) == ""
        features = np.array(target.features(later, 0, len(tokens)))
        assert features.tobytes() == np.asarray(wanted.features).tobytes()


def test_vllm_ddtree_11_ancestors_of_the_second_request() -> None:
    """vllm-ddtree, section 11: offsets into the packed tree mask were wrong after request 0."""
    driver = make_driver(5, pattern="ag")
    texts = [started(driver, tokens_of(n, n)) for n in (3, 9, 5)]
    trees = [BUSH, Tree.build([1, 2, 3, 4], [-1, 0, 0, 1]), CHAIN]
    # the driver compares the logits of every row of every request
    assert driver.verify(list(zip(texts, trees, strict=True)))
    driver.close_all()


def test_vllm_ddtree_11_slot_0_is_a_slot_like_any_other() -> None:
    """vllm-ddtree, section 11: slot 0 meant "none"."""
    driver = make_driver(5)
    texts = [started(driver, (1, 2, 3)) for _ in range(3)]
    assert [text.sequence.slot for text in texts] == [0, 1, 2]
    for text in texts:
        play(driver, text, BUSH, (0, 2, 5))
        play(driver, text, CHAIN, (0, 1))
        driver.check_state(text)
    driver.close_all()
