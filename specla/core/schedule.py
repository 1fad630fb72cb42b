"""Heavy-light schedule: which chains to walk, in which order, and which states to keep.

SpecLA, section 4.3. The heavy child of a node is the one with the largest subtree (ties: the
lowest index). A chain follows heavy children down to a leaf, with the recurrent state held in
registers. Every other (light) child heads a chain of its own, which starts from the state at its
parent; only those states, the *boundary* states, are ever written to memory. Chains are grouped
in waves: a chain's wave is one more than the wave of the chain that its parent lies on, so that
all chains of a wave can run at once.
"""

from __future__ import annotations

from dataclasses import dataclass

from specla.core.topology import Forest, Tree


@dataclass(frozen=True)
class Chain:
    """A run of nodes walked with the state resident.

    sequence: index of the tree in the forest.  rows: forest rows, from the head down.
    source: boundary slot to start from, or -1 for the sequence's durable state.  wave: see above.
    """

    sequence: int
    rows: tuple[int, ...]
    source: int
    wave: int


@dataclass(frozen=True)
class Schedule:
    """Chains ordered by (wave, sequence, head row), and where boundary states are kept.

    wave_offsets: index of the first chain of each wave, then the number of chains.
    boundary_of_row: boundary slot in which the state after a row is stored, or -1.
    """

    chains: tuple[Chain, ...]
    wave_offsets: tuple[int, ...]
    boundary_of_row: tuple[int, ...]
    n_boundaries: int


def subtree_sizes(tree: Tree) -> list[int]:
    """Number of nodes in the subtree of each node, itself included."""
    sizes = [1] * len(tree)
    for node in range(len(tree) - 1, 0, -1):
        sizes[tree.parents[node]] += sizes[node]
    return sizes


def heavy_children(tree: Tree) -> list[int]:
    """The heavy child of each node, or -1 for a leaf."""
    sizes = subtree_sizes(tree)
    # max() keeps the first of equals, and children ascend: ties go to the lowest index
    return [max(kids, key=lambda k: sizes[k], default=-1) for kids in tree.children]


@dataclass(frozen=True)
class _LocalChain:
    nodes: tuple[int, ...]
    parent: int
    wave: int


def _local_chains(tree: Tree) -> list[_LocalChain]:
    heavy = heavy_children(tree)
    wave = [0] * len(tree)
    chains = []
    for head in range(len(tree)):
        parent = tree.parents[head]
        if parent >= 0 and heavy[parent] == head:
            continue
        level = 0 if parent < 0 else wave[parent] + 1
        nodes = [head]
        while heavy[nodes[-1]] >= 0:
            nodes.append(heavy[nodes[-1]])
        # heads ascend, so a parent's chain has been walked before any chain that hangs off it
        for node in nodes:
            wave[node] = level
        chains.append(_LocalChain(tuple(nodes), parent, level))
    return chains


def heavy_light(forest: Forest) -> Schedule:
    """Schedule a forest. Deterministic: a function of the parents alone."""
    pending = [
        (local.wave, sequence, local)
        for sequence, tree in enumerate(forest.trees)
        for local in _local_chains(tree)
    ]
    pending.sort(key=lambda item: (item[0], item[1], item[2].nodes[0]))
    boundary = [-1] * forest.rows
    n_boundaries = 0
    chains = []
    for wave, sequence, local in pending:
        offset = forest.offsets[sequence]
        source = -1
        if local.parent >= 0:
            row = offset + local.parent
            if boundary[row] < 0:
                boundary[row] = n_boundaries
                n_boundaries += 1
            source = boundary[row]
        chains.append(Chain(sequence, tuple(offset + n for n in local.nodes), source, wave))
    waves = [chain.wave for chain in chains]
    starts = [waves.index(w) for w in range(waves[-1] + 1)]
    return Schedule(tuple(chains), (*starts, len(chains)), tuple(boundary), n_boundaries)
