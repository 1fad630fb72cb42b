"""The bug zoo: trees, positions, and what a node may see (docs/bug-zoo.md)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support.setup import make_driver, plain_decoder
from support.tiny import VOCAB, tiny_target
from zoo.zoo_driver import (
    GREEDY,
    PROMPT,
    Guesses,
    opened,
    play,
    started,
    truth,
    wrong_rows,
)

from specla.adapters.block_rows import MarkovRows
from specla.core.lifecycle import Ledger
from specla.core.plan import Place, build_plan
from specla.core.proposal import Proposal
from specla.core.topology import Forest, Tree
from specla.core.trees import Node, TreeShape, best_first
from specla.engine import Request, Session
from specla.errors import CapacityError, TopologyError
from specla.models.dflash.block import BlockDraft

pytestmark = pytest.mark.usefixtures("backend_name")

BUSH = Tree.build([9, 8, 7, 6, 5, 4], [-1, 0, 0, 1, 2, 2])
STAR = Tree.build([9, 1, 2, 3, 4, 5], [-1, 0, 0, 0, 0, 0])
CHAIN = Tree.chain([9, 8, 7, 6, 5, 4])


@pytest.mark.parametrize("tree", [BUSH, STAR], ids=["bush", "star"])
def test_sglang_27463_a_tree_is_verified_as_a_tree(tree: Tree) -> None:
    """sglang#27463: a kernel ignored the parents, so that trees were silently verified as chains.
    Recurrent layers alone, attention alone, and both."""
    for pattern in ("gg", "aa", "ga"):
        target = tiny_target(7, pattern=pattern)
        verified = target.verify([(opened(target), tree)])
        plain = plain_decoder(7, pattern=pattern)
        assert wrong_rows(target, verified, [(PROMPT, tree)], plain) == []


MALFORMED: dict[str, Any] = {
    "its own parent": [-1, 1],
    "a parent after it": [-1, 2, 0],
    "two that are each other's": [-1, 2, 1],
    "no root": [0, 0],
    "two roots": [-1, -1],
    "beyond the end": [-1, 0, 10**6],
    "beyond 64 bits": [-1, 2**70],
    "negative": [-1, -2],
    "a fraction": [-1, 0.0],
    "a truth value": [-1, False],
    "NaN": [-1, float("nan")],
    "a list": [-1, [0]],
    "unsigned -1": np.array([2**32 - 1, 0], np.uint32),
}


@pytest.mark.parametrize("parents", MALFORMED.values(), ids=MALFORMED.keys())
def test_sglang_36201_a_malformed_tree_is_refused(parents: Any) -> None:
    """sglang#36201: a malformed tree led to reads out of bounds or an endless walk to the root."""
    with pytest.raises(TopologyError) as error:
        Tree.build(range(len(parents)), parents)
    assert "\n" not in str(error.value)


def test_sglang_36201_an_adapters_malformed_tree_costs_a_round() -> None:
    """The same report, from an adapter's side: refused by name, and the text is plain decoding's.
    A tree that never ends is one of them."""
    target = tiny_target(7, context=64)
    shapes: list[Any] = [parents[1:] for parents in MALFORMED.values()] + [itertools.repeat(-1)]
    given = iter(shapes)

    def propose(_view: Any) -> Proposal:
        parents = next(given, [])
        endless = isinstance(parents, itertools.repeat)
        tokens: Any = itertools.count() if endless else range(len(parents))
        # indices of candidates, not of nodes: what was legal there is not legal here
        return Proposal(tokens, parents)

    right = truth(target, 20)
    with Session(target, Guesses(propose), PROMPT, adapter_name="bad") as session:
        assert [e.token for e in session.generate(Request(20, GREEDY, budget=8))] == right
        assert session.stats.refused >= 10 and "'bad'" in (session.stats.refusal or "")


def test_mlxcel_1214_a_position_is_a_depth() -> None:
    """mlxcel#1214: a branching tree wasn't its chains although a linear one was, for a position was
    the node's index in the span and not its depth."""
    place = Place(0, 10, 0, (0,), (0,))
    assert build_plan(Forest((BUSH,)), [place]).position.tolist() == [10, 11, 11, 12, 12, 12]
    target, plain = tiny_target(7, pattern="aga"), plain_decoder(7, pattern="aga")
    sequence = opened(target)
    for tree in (CHAIN, BUSH, STAR):
        verified = target.verify([(sequence, tree)])
        assert wrong_rows(target, verified, [(PROMPT, tree)], plain) == []


def test_vllm_ddtree_11_positions_count_what_was_accepted() -> None:
    """vllm-ddtree, section 11: tree positions were off by 4 to 10 on 94% of the steps, for counters
    on the host were optimistic."""
    driver = make_driver(7)
    text, length = started(driver), len(PROMPT)
    for tree, path in ((CHAIN, (0,)), (BUSH, (0, 2)), (CHAIN, (0, 1, 2)), (STAR, (0, 5))):
        play(driver, text, tree, path)
        length += len(path)
        assert text.sequence.length == length == text.sequence.ledger.place().committed
        driver.check_state(text)
    driver.close_all()


def test_vllm_ddtree_11_depths_change_from_step_to_step() -> None:
    """vllm-ddtree, section 11: rotary positions by depth were ignored under graphs, which had
    captured a pointer. Steps of one size, so that one recording serves all: depths differ."""
    target, plain = tiny_target(7, pattern="ag"), plain_decoder(7, pattern="ag")
    sequence, tokens = opened(target), PROMPT
    for tree in (CHAIN, STAR, BUSH, CHAIN, STAR):
        verified = target.verify([(sequence, tree)])
        assert wrong_rows(target, verified, [(tokens, tree)], plain) == []
        target.commit(sequence, (0,))
        tokens = (*tokens, tree.tokens[0])


@pytest.mark.parametrize("nodes", [8, 9, 17, 33])
def test_vllm_ddtree_11_wide_trees_stay_trees(nodes: int) -> None:
    """vllm-ddtree, section 11: above 8 nodes a tree silently became a chain. Here there is one
    limit, and more than that is an error."""
    parents = [-1, *([0] * (nodes // 2)), *range(1, nodes - nodes // 2)]
    tree = Tree.build(range(nodes), parents)
    target = tiny_target(7, max_nodes=33, pattern="ga", slots=1)
    sequence = opened(target)
    verified = target.verify([(sequence, tree)])
    assert wrong_rows(target, verified, [(PROMPT, tree)], plain_decoder(7, pattern="ga")) == []
    with pytest.raises(CapacityError, match="34 nodes"):
        target.verify([(sequence, Tree.chain(range(34)))])


def test_mlx_vlm_1188_no_node_sees_a_later_draft() -> None:
    """mlx-vlm#1188: draft tokens saw later drafts. Whatever comes after a node, or beside it, its
    logits have the same bytes."""
    target = tiny_target(7, pattern="gag")
    sequence = opened(target)
    whole = target.backend.download(target.verify([(sequence, BUSH)]).logits)
    for size in range(1, len(BUSH)):
        part = Tree.build(BUSH.tokens[:size], BUSH.parents[:size])
        rows = target.backend.download(target.verify([(sequence, part)]).logits)
        assert rows.tobytes() == whole[:size].tobytes()
    other = Tree.build([*BUSH.tokens[:5], VOCAB - 1], BUSH.parents)
    rows = target.backend.download(target.verify([(sequence, other)]).logits)
    assert rows[:5].tobytes() == whole[:5].tobytes() and rows[5].tobytes() != whole[5].tobytes()


def test_lucebox_equal_scores_have_one_tree() -> None:
    """lucebox: the order of equal scores in a heap is the library's affair, so that trees were not
    reproducible. Here it is stated: shallow before deep, then by rank, then by parent."""

    def expand(node: Node) -> tuple[list[int], list[float]]:
        return [2, 1, 3], [0.0, 0.0, 0.0]

    found = best_first(0, expand, TreeShape(budget=9, max_depth=3))
    # the spine (ranks 0) stands in front; then in the order in which the nodes were taken
    assert list(found.tokens) == [2, 2, 1, 3, 2, 2, 1, 1, 1]
    assert list(found.parents) == [-1, 0, -1, -1, 2, 3, 0, 2, 3]


class _Bias:
    """Adds 9 to the token after the one before it."""

    def biases(self, ids: Any) -> Any:
        return lambda row, before: np.where(ids[row] == before + 1, 9.0, 0.0).astype(np.float32)

    def corrected(self, draft: BlockDraft, row: int, before: int) -> Any:
        raise AssertionError("a shortlist has no need of it")


def test_lucebox_a_branch_is_corrected_by_its_own_token() -> None:
    """lucebox: in a tree with a Markov head all siblings of a depth had the bias of the greedy
    path's token."""
    logits = np.zeros((2, 8), np.float32)
    ids = np.tile(np.arange(8, dtype=np.int32), (2, 1))
    draft = BlockDraft(0, ids, logits, np.full(2, np.log(8.0)), None, logits)
    rows = MarkovRows(draft, _Bias(), top_k=1, shortlist=8, vocab_size=8)
    for before in (1, 3, 6):
        assert rows(Node(1, before))[0] == [before + 1]


def test_lucebox_the_ledger_knows_no_position_but_the_length() -> None:
    """The design fact below several of these: a sequence's position is stored once."""
    ledger = Ledger(0, 1)
    ledger.begin_prefill()
    ledger.end_prefill(7)
    assert ledger.place().committed == ledger.length == ledger.save().length == 7
