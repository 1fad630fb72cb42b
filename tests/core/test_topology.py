"""Trees and forests: hand-worked facts, and hostile arrays that must be named, not followed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.forests import naive_path, trees

from specla.core.topology import MAX_NODES, MAX_TOKEN, Forest, Tree, as_integers, prune
from specla.errors import TopologyError

# 0 - 1 - 3 - 6
#   \   \ 4 - 7
#    2 - 5
EIGHT = Tree.build([10, 11, 12, 13, 14, 15, 16, 17], [-1, 0, 0, 1, 1, 2, 3, 4])


def test_eight_node_tree() -> None:
    assert EIGHT.depths == (0, 1, 1, 2, 2, 2, 3, 3)
    assert EIGHT.children == ((1, 2), (3, 4), (5,), (6,), (7,), (), (), ())
    assert EIGHT.path_to(7) == (0, 1, 4, 7)
    assert EIGHT.path_to(0) == (0,)
    assert EIGHT.child_with_token(1, 14) == 4
    assert EIGHT.child_with_token(1, 15) is None
    assert EIGHT.child_with_token(-1, 10) == 0
    assert len(EIGHT) == 8


def test_lone_and_chain() -> None:
    assert Tree.lone(5) == Tree((5,), (-1,))
    assert Tree.chain([4, 4, 4]) == Tree((4, 4, 4), (-1, 0, 1))
    assert Tree.chain([7, 8]).depths == (0, 1)


def test_numpy_integers_and_generators_become_plain_ints() -> None:
    tree = Tree.build(np.array([1, 2], dtype=np.uint16), (np.int64(p) for p in (-1, 0)))
    assert tree == Tree((1, 2), (-1, 0))
    assert all(type(x) is int for x in (*tree.tokens, *tree.parents))


HOSTILE: list[tuple[Any, Any, str, str]] = [
    # tokens, parents, what must be named, and its value
    ([1, 2], [-1, 1], "parents[1]", "1"),  # its own parent
    ([1, 2, 3], [-1, 2, 1], "parents[1]", "2"),  # a cycle
    ([1, 2, 3], [-1, 2, 0], "parents[1]", "2"),  # forward
    ([1, 2], [-1, -1], "parents[1]", "-1"),  # a second root
    ([1, 2], [-1, -2], "parents[1]", "-2"),
    ([1, 2], [-1, 2**31], "parents[1]", str(2**31)),
    ([1, 2], [-1, -(2**63)], "parents[1]", str(-(2**63))),
    ([1, 2], [-1, np.iinfo(np.int64).max], "parents[1]", str(2**63 - 1)),
    ([1], [0], "parents[0]", "0"),
    ([1], [-2], "parents[0]", "-2"),
    ([1, 2], [-1, 0.0], "parents[1]", "0.0"),
    ([1, 2], [-1, np.float32(0)], "parents[1]", "0.0"),
    ([1, 2], [-1, float("nan")], "parents[1]", "nan"),
    ([1, 2], [-1, False], "parents[1]", "False"),
    ([1, 2], [-1, np.False_], "parents[1]", "False"),
    ([1, 2], [-1, "0"], "parents[1]", "'0'"),
    ([1, 2], [-1, None], "parents[1]", "None"),
    ([1, 2], [-1, [0]], "parents[1]", "[0]"),
    ([1, 2.0], [-1, 0], "tokens[1]", "2.0"),
    ([True], [-1], "tokens[0]", "True"),
    ("ab", [-1, 0], "tokens[0]", "'a'"),
    ([-1], [-1], "tokens[0]", "-1"),
    ([1, MAX_TOKEN], [-1, 0], "tokens[1]", str(MAX_TOKEN)),
    ([1, 2**70], [-1, 0], "tokens[1]", str(2**70)),
]


@pytest.mark.parametrize(("tokens", "parents", "where", "value"), HOSTILE)
def test_hostile_arrays_are_named(tokens: Any, parents: Any, where: str, value: str) -> None:
    with pytest.raises(TopologyError) as caught:
        Tree.build(tokens, parents)
    message = str(caught.value)
    assert where in message and value in message and "\n" not in message


@pytest.mark.parametrize(
    ("tokens", "parents", "words"),
    [
        ([], [], "root"),
        ([1], [-1, 0], "1 tokens but 2 parents"),
        ([1, 2], [-1], "2 tokens but 1 parents"),
        (range(MAX_NODES + 1), range(-1, MAX_NODES), str(MAX_NODES + 1)),
        ([1, 7, 7], [-1, 0, 0], "nodes 1 and 2 are siblings under node 0 with the same token 7"),
        ([1, 7, 8, 7], [-1, 0, 1, 0], "nodes 1 and 3"),
    ],
)
def test_bad_shapes(tokens: Any, parents: Any, words: str) -> None:
    with pytest.raises(TopologyError, match=words.replace("(", r"\(")):
        Tree.build(tokens, parents)


def test_limits() -> None:
    assert len(Tree.build([0] * MAX_NODES, range(-1, MAX_NODES - 1))) == MAX_NODES
    with pytest.raises(TopologyError, match="at most 2"):
        Tree.build([0] * 3, range(-1, 2), max_nodes=2)
    with pytest.raises(TopologyError, match=r"tokens\[1\] is 5; token ids are 0\.\.4"):
        Tree.build([4, 5], [-1, 0], vocab_size=5)
    # cousins and parents may carry the same token
    Tree.build([3, 3, 4, 3, 3], [-1, 0, 0, 1, 2])


@given(tokens=st.lists(st.integers(0, 3), max_size=8), parents=st.lists(st.integers(-3, 9)))
def test_accepts_exactly_the_well_formed(tokens: list[int], parents: list[int]) -> None:
    well_formed = (
        len(tokens) == len(parents) > 0
        and parents[0] == -1
        and all(0 <= p < i for i, p in enumerate(parents) if i)
        and len(set(zip(parents, tokens, strict=True))) == len(tokens)
    )
    try:
        tree = Tree.build(tokens, parents)
    except TopologyError:
        assert not well_formed
    else:
        assert well_formed
        assert (list(tree.tokens), list(tree.parents)) == (tokens, parents)


@given(trees())
def test_depths_paths_and_children_agree_with_the_parents(tree: Tree) -> None:
    for node in range(len(tree)):
        path = naive_path(tree, node)
        assert tree.path_to(node) == tuple(path)
        assert tree.depths[node] == len(path) - 1
        assert tree.check_path(path) == tuple(path)
        assert tree.children[node] == tuple(i for i, p in enumerate(tree.parents) if p == node)
        for child in tree.children[node]:
            assert tree.child_with_token(node, tree.tokens[child]) == child


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ([], "empty"),
        ([1], r"path\[0\] is node 1"),
        ([0, 3], r"path\[1\] is node 3, whose parent is 1, not 0"),
        ([0, 0], r"path\[1\] is node 0"),
        ([0, 1, 5], r"path\[2\] is node 5"),
        ([0, 8], r"path\[1\] is 8"),
        ([0, -1], r"path\[1\] is -1"),
        ([0, 1.0], r"path\[1\] is 1.0"),
        ([False], r"path\[0\] is False"),
        ([0, 1, 3, 6, 7], r"path\[4\] is node 7"),
    ],
)
def test_paths_that_are_none(path: list[Any], words: str) -> None:
    with pytest.raises(TopologyError, match=words):
        EIGHT.check_path(path)


@pytest.mark.parametrize("node", [-1, 8, 100])
def test_path_to_a_node_outside(node: int) -> None:
    with pytest.raises(TopologyError, match=str(node)):
        EIGHT.path_to(node)


def test_prune() -> None:
    tree, kept = prune(EIGHT, 1)
    assert tree == Tree((10, 11, 12), (-1, 0, 0)) and kept == (0, 1, 2)
    tree, kept = prune(EIGHT, 3)
    assert tree == EIGHT and kept == tuple(range(8))
    deep_first = Tree.build([1, 2, 3, 4, 5], [-1, 0, 1, 2, 0])
    tree, kept = prune(deep_first, 1)
    assert tree == Tree((1, 2, 5), (-1, 0, 0)) and kept == (0, 1, 4)


@given(tree=trees(), depth=st.integers(0, 6))
def test_pruned_trees_keep_their_paths(tree: Tree, depth: int) -> None:
    pruned, kept = prune(tree, depth)
    assert kept == tuple(n for n in range(len(tree)) if tree.depths[n] <= depth)
    for new, old in enumerate(kept):
        found = [pruned.tokens[n] for n in pruned.path_to(new)]
        assert found == [tree.tokens[n] for n in tree.path_to(old)]


def test_forest() -> None:
    forest = Forest((Tree.lone(1), EIGHT, Tree.chain([1, 2])))
    assert forest.offsets == (0, 1, 9, 11)
    assert forest.rows == 11
    with pytest.raises(TopologyError, match="at least one tree"):
        Forest(())


def test_as_integers_names_the_list() -> None:
    assert as_integers([np.int8(3), 4], "nodes") == (3, 4)
    with pytest.raises(TopologyError, match=r"nodes\[1\] is 'x'"):
        as_integers([1, "x"], "nodes")


@pytest.mark.parametrize(
    "bad", [None, 3, [10**5000], [np.zeros((3, 3))], [object()], "ab", [[1], [2]]]
)
def test_any_nonsense_is_refused_in_one_line(bad: Any) -> None:
    for build in (
        lambda: Tree.build(bad, [-1]),
        lambda: Tree.build([1], bad),
        lambda: Tree.chain([1, 2]).check_path(bad),
    ):
        with pytest.raises(TopologyError) as caught:
            build()
        assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_pruning_keeps_the_root() -> None:
    tree = Tree.build([5, 6, 7, 8], [-1, 0, 0, 2])
    assert prune(tree, -1) == (Tree.lone(5), (0,))
    assert prune(tree, 0) == (Tree.lone(5), (0,))
    assert prune(tree, 1) == (Tree.build([5, 6, 7], [-1, 0, 0]), (0, 1, 2))
    assert prune(tree, 2) == (tree, (0, 1, 2, 3))
