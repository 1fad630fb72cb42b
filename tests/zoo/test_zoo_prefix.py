"""The bug zoo: prefixes, pages, snapshots, forks, and sizes (docs/bug-zoo.md)."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from support.forests import forests
from support.setup import make_driver
from support.tiny import tiny_config, tiny_target
from zoo.zoo_driver import opened, play, started, tokens_of

from specla.core.paging import PAGE, pages_for
from specla.core.schedule import heavy_light
from specla.core.topology import Tree
from specla.fuzz.lifecycle.driver import Driver
from specla.fuzz.lifecycle.texts import Text
from specla.models.qwen35.options import TargetOptions, kv_shape, recurrent_shape

pytestmark = pytest.mark.usefixtures("backend_name")

CHAIN = Tree.chain([9, 8, 7, 6, 5])
BUSH = Tree.build([9, 8, 7, 6, 5, 4], [-1, 0, 0, 1, 2, 2])
AROUND_A_PAGE = (PAGE - 1, PAGE, PAGE + 1, 2 * PAGE + 1)


def speculate(driver: Driver, text: Text) -> None:
    """Rounds of all kinds, then every byte."""
    play(driver, text, BUSH, (0, 2, 5))
    play(driver, text, CHAIN, (0, 1))
    play(driver, text, Tree.lone(3), (0,))
    driver.check_state(text)


@pytest.mark.parametrize("how", ["fork", "snapshot"])
@pytest.mark.parametrize("path", [(0, 1), (0, 2, 4)])
def test_vllm_48375_a_cached_prefix_and_speculation_equal_a_cold_start(
    how: str, path: tuple[int, ...]
) -> None:
    """vllm#48375, #43559: answers got worse without a sound and spread through the prefix cache,
    for the manager of recurrent states ignored that the last block of a draft had to be dropped.
    The prefix is cached in the middle of speculation, its accepted factors still pending."""
    driver = make_driver(8)
    first = started(driver, tokens_of(1, 20))
    play(driver, first, BUSH, path)
    if how == "fork":
        second = driver.fork(first)
        assert second is not None
    else:
        saved = driver.snapshot(first)
        speculate(driver, first)
        second = driver.open()
        assert second is not None and saved is not None
        driver.restore(second, saved)
    for text in (second, first):
        speculate(driver, text)
    driver.close_all()


@settings(max_examples=3, derandomize=True, phases=[Phase.explicit, Phase.generate])
@given(
    length=st.sampled_from(AROUND_A_PAGE[:3]) | st.integers(1, 80),
    accepted=st.integers(1, 3),
    pending=st.booleans(),
)
def test_vllm_45614_a_prefix_has_one_length_for_all_layers(
    length: int, accepted: int, pending: bool
) -> None:
    """vllm#45614: with the prefix cache the text was another one, for the common prefix of a hybrid
    could grow past the boundary to which there was a recurrent state."""
    driver = make_driver(8, context=256, slots=2)
    text = started(driver, tokens_of(2, length))
    play(driver, text, CHAIN, range(accepted))
    if not pending:
        driver.flush(text)
    saved = driver.snapshot(text)
    assert saved is not None
    assert saved.snapshot.ledger.length == length + accepted
    assert len(saved.snapshot.pages) == pages_for(length + accepted)
    driver.close(text)
    # the next text in this slot leaves its own keys in freed pages
    driver.target.close(opened(driver.target, tokens_of(3, length)))
    heir = driver.open()
    assert heir is not None
    driver.restore(heir, saved)
    speculate(driver, heir)
    driver.close_all()


def test_vllm_53505_every_way_to_a_prefix_leads_to_the_same_state() -> None:
    """vllm#53505: corruption with a KV connector that transferred nothing, for another path of
    reconciliation chose a boundary for which there was no state."""
    driver = make_driver(8, context=256)
    cold = started(driver, (*tokens_of(4, 66), 9, 7))
    warm = started(driver, tokens_of(4, 66))
    play(driver, warm, BUSH, (0, 2))
    saved = driver.snapshot(warm)
    assert saved is not None and warm.tokens == cold.tokens
    forked = driver.fork(warm)
    assert forked is not None
    for text in (cold, forked, warm):
        speculate(driver, text)
    driver.close(cold)
    again = driver.open()
    assert again is not None
    for text in (again, warm):
        driver.restore(text, saved)
        speculate(driver, text)
    driver.close_all()


@pytest.mark.parametrize("shared", [False, True])
def test_vllm_41233_tables_have_room_for_candidates(shared: bool) -> None:
    """vllm#41233, #39809: a crash with prefix caching and speculation, for tables had been sized
    without the speculative slots. All sequences at the end of their context, with wide trees."""
    driver = make_driver(8, context=66, slots=3, max_nodes=9)
    prompt = tokens_of(5, 64)
    first = started(driver, prompt)
    for _ in range(2):
        if shared:
            driver.fork(first)
        else:
            started(driver, prompt)
    star = Tree.build(range(9), [-1, *([0] * 8)])
    assert driver.verify([(text, star) for text in driver.texts])
    assert driver.commit_all([(text, (0, 8)) for text in driver.texts])
    for text in driver.texts:
        assert len(text.tokens) == 66
    driver.check_state(first)
    driver.close_all()


@given(forest=forests(max_trees=4, max_nodes=9))
def test_vllm_41233_what_a_step_needs_there_is(forest: object) -> None:
    """The same reports as arithmetic: boundary states, banks and pages for any forest."""
    options = TargetOptions(context=2 * PAGE, max_nodes=9, slots=4)
    recurrent, kv = recurrent_shape(tiny_config(), options), kv_shape(tiny_config(), options)
    schedule = heavy_light(forest)  # type: ignore[arg-type]
    assert schedule.n_boundaries <= recurrent.boundaries
    assert max(len(tree) for tree in forest.trees) <= recurrent.nodes  # type: ignore[attr-defined]
    assert kv.pages_per_slot * PAGE >= options.context + options.max_nodes
    assert kv.pages >= options.slots * kv.pages_per_slot


@pytest.mark.parametrize("length", AROUND_A_PAGE)
def test_vllm_46424_prompts_around_a_page(length: int) -> None:
    """vllm#46424: a prompt of N blocks and one token ended ranks, for a prefill of one token had
    been called a decode."""
    driver = make_driver(8, context=256, chunk=PAGE)
    text = started(driver, tokens_of(6, length))
    driver.check_state(text)
    speculate(driver, text)
    driver.close_all()


def test_llama_cpp_20075_a_shared_cell_is_copied_from_the_right_source() -> None:
    """llama.cpp#20075: garbage in loops, for a slot's state was read from the wrong cell, and a
    copy was missing. A page shared by three, written by each."""
    driver = make_driver(8, context=256)
    first = started(driver, tokens_of(7, PAGE + 6))
    for _ in range(2):
        assert driver.fork(first) is not None
    for i, text in enumerate(driver.texts):
        play(driver, text, Tree.chain([i, i + 1, i + 2, i + 3]), (0, 1, 2))
    for text in driver.texts:
        speculate(driver, text)
    driver.close_all()


def test_vllm_47635_shapes_are_computed_in_one_place() -> None:
    """vllm#47635: models failed to start, for the shape of a state was computed in two places, one
    of which left out the speculative tokens. What is reported is what is allocated."""
    for max_nodes, slots in ((1, 1), (9, 2), (33, 3)):
        target = tiny_target(8, max_nodes=max_nodes, slots=slots, features=(0,))
        pool, kv = target.store.recurrent, target.store.kv
        shape = pool.shape
        assert shape == recurrent_shape(target.config, target.options)
        assert pool.state.nbytes + pool.window.nbytes == slots * shape.state_bytes
        banks = (pool.key, pool.delta, pool.decay, pool.inputs)
        assert sum(b.nbytes for b in banks) == 2 * slots * max_nodes * shape.node_bytes
        assert kv.key.nbytes + kv.value.nbytes == kv.shape.pages * kv.shape.page_bytes
        assert replace(kv.shape) == kv_shape(target.config, target.options)
        assert np.shape(target.store.features.rows)[1] == kv.shape.context  # type: ignore[union-attr]
