"""Trees and forests of candidate tokens, validated once so that nobody downstream has to.

Node 0 of a tree is the root: the token that is decided but not yet in the target's state. The
other nodes are candidates. Nodes are in topological order: ``parents[0] == -1`` and
``parents[i] < i``; siblings carry distinct tokens. A chain is a tree with one leaf; a lone root is
plain decoding. A forest has one tree per sequence of a batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from operator import index

import numpy as np

from specla.errors import TopologyError

MAX_NODES = 4096
"""Upper limit on the nodes of one tree: beyond it a proposal is an accident, not a guess."""

MAX_TOKEN = 2**31 - 1


def as_integers(values: Iterable[object], what: str) -> tuple[int, ...]:
    """Plain ints from ints or NumPy integers. Raises TopologyError naming index and value."""
    result = []
    try:
        numbered = enumerate(values)
    except TypeError:
        raise TopologyError(f"{what} is {_shown(values)}, not a list of integers") from None
    for i, value in numbered:
        try:
            # index() takes ints and NumPy integers, refuses floats; a truth value is no number here
            if isinstance(value, (bool, np.bool_)):
                raise TypeError
            number = index(value)  # type: ignore[arg-type]
        except TypeError:
            raise TopologyError(f"{what}[{i}] is {_shown(value)}, not an integer") from None
        if number.bit_length() > 4096:  # Python refuses to print much larger ones
            raise TopologyError(f"{what}[{i}] has {number.bit_length()} bits; it is no index")
        result.append(number)
    return tuple(result)


def _at_most(values: Iterable[object], count: int) -> Iterable[object]:
    """The first ``count`` values; what is no iterable stays what it is, to be complained about."""
    return islice(values, count) if isinstance(values, Iterable) else values


def _shown(value: object) -> str:
    """A value of any kind as part of one short line."""
    return " ".join(repr(value).split())[:80]


@dataclass(frozen=True)
class Tree:
    """One root and its candidates.

    tokens: token ids, root first.  parents: index of each node's parent, -1 for the root.
    Build with :meth:`build` (validates) rather than directly.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]

    @staticmethod
    def build(
        tokens: Iterable[object],
        parents: Iterable[object],
        *,
        max_nodes: int = MAX_NODES,
        vocab_size: int = MAX_TOKEN,
    ) -> Tree:
        """Validate and build. Raises TopologyError naming the first bad index and its value."""
        # one more than allowed is enough to see that there are too many: it may never end
        ids = as_integers(_at_most(tokens, max_nodes + 1), "tokens")
        up = as_integers(_at_most(parents, max_nodes + 1), "parents")
        if len(ids) != len(up):
            raise TopologyError(f"{len(ids)} tokens but {len(up)} parents; give one per node")
        if not ids:
            raise TopologyError("a tree needs at least its root; got no nodes")
        if len(ids) > max_nodes:
            raise TopologyError(
                f"a tree of {len(ids)} nodes or more; at most {max_nodes} are allowed"
            )
        if up[0] != -1:
            raise TopologyError(f"parents[0] is {up[0]}; the root's parent must be -1")
        seen: dict[tuple[int, int], int] = {}
        for i, (token, parent) in enumerate(zip(ids, up, strict=True)):
            if not 0 <= token < vocab_size:
                raise TopologyError(f"tokens[{i}] is {token}; token ids are 0..{vocab_size - 1}")
            if i and not 0 <= parent < i:
                raise TopologyError(
                    f"parents[{i}] is {parent}; a parent comes before its child (0..{i - 1})"
                )
            twin = seen.setdefault((parent, token), i)
            if twin != i:
                raise TopologyError(
                    f"nodes {twin} and {i} are siblings under node {parent} with the same "
                    f"token {token}; siblings must differ"
                )
        return Tree(ids, up)

    @staticmethod
    def lone(root: int) -> Tree:
        """The tree of plain decoding: a root without candidates."""
        return Tree.build((root,), (-1,))

    @staticmethod
    def chain(tokens: Sequence[int]) -> Tree:
        """A chain, root first."""
        return Tree.build(tokens, range(-1, len(tokens) - 1))

    def __len__(self) -> int:
        return len(self.tokens)

    @cached_property
    def depths(self) -> tuple[int, ...]:
        """Distance of each node from the root."""
        result = [0]
        for parent in self.parents[1:]:
            result.append(result[parent] + 1)
        return tuple(result)

    @cached_property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node, in ascending order."""
        result: list[list[int]] = [[] for _ in self.parents]
        for node, parent in enumerate(self.parents[1:], start=1):
            result[parent].append(node)
        return tuple(map(tuple, result))

    @cached_property
    def _by_token(self) -> dict[tuple[int, int], int]:
        return {(p, t): i for i, (p, t) in enumerate(zip(self.parents, self.tokens, strict=True))}

    def child_with_token(self, node: int, token: int) -> int | None:
        """The child of ``node`` that carries ``token``, or None."""
        return self._by_token.get((node, token))

    def path_to(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to ``node``, both included."""
        if not 0 <= node < len(self):
            raise TopologyError(f"node {node} is not in a tree of {len(self)} nodes")
        path = [node]
        while path[-1]:
            path.append(self.parents[path[-1]])
        return tuple(reversed(path))

    def check_path(self, path: Iterable[object]) -> tuple[int, ...]:
        """Validate an accepted path: root first, each node the parent of the next, not empty.

        Raises TopologyError naming the first bad index.
        """
        nodes = as_integers(_at_most(path, len(self) + 1), "path")
        if not nodes:
            raise TopologyError("the accepted path is empty; it starts with the root, node 0")
        previous = -1
        for i, node in enumerate(nodes):
            if not 0 <= node < len(self):
                raise TopologyError(f"path[{i}] is {node}; the tree has nodes 0..{len(self) - 1}")
            if self.parents[node] != previous:
                raise TopologyError(
                    f"path[{i}] is node {node}, whose parent is {self.parents[node]}, "
                    f"not {previous}"
                )
            previous = node
        return nodes


def prune(tree: Tree, max_depth: int) -> tuple[Tree, tuple[int, ...]]:
    """The tree without nodes deeper than ``max_depth``, and the old number of each kept node.

    The root stays whatever ``max_depth`` is.
    """
    kept = tuple(node for node, depth in enumerate(tree.depths) if depth <= max(max_depth, 0))
    if len(kept) == len(tree):
        return tree, kept
    number = {node: i for i, node in enumerate(kept)} | {-1: -1}
    tokens = tuple(tree.tokens[node] for node in kept)
    return Tree(tokens, tuple(number[tree.parents[node]] for node in kept)), kept


@dataclass(frozen=True)
class Forest:
    """One tree per sequence of a batch; rows are the nodes of all trees, one tree after another."""

    trees: tuple[Tree, ...]

    def __post_init__(self) -> None:
        if not self.trees:
            raise TopologyError("a forest needs at least one tree; got none")

    @cached_property
    def offsets(self) -> tuple[int, ...]:
        """Row of each tree's root, then the total number of rows: [trees + 1]."""
        total = [0]
        for tree in self.trees:
            total.append(total[-1] + len(tree))
        return tuple(total)

    @property
    def rows(self) -> int:
        """Number of nodes over all trees."""
        return self.offsets[-1]
