"""What the adapters that grow a tree from a drafted block have in common."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specla.adapters.block import BlockOptions
from specla.adapters.checks import check_integers, check_numbers
from specla.core.proposal import SequenceView
from specla.core.topology import MAX_NODES
from specla.core.trees import TreeShape
from specla.models.dflash.block import BlockDrafter

GREEDY = 0.5
"""Default temperature for a greedy target: it takes what the draft thinks likeliest more often than
the draft's probability says, and the second best more rarely (measured: docs/benchmarks.md)."""


@dataclass(frozen=True)
class TreeOptions(BlockOptions):
    """Options of a tree, beside those of the drafter.

    tau: only nodes whose path is at most this much less likely (in ln) than the best first token;
    inf for no limit.  top_k: most children of a node.
    chain_seed: take the greedy path before all other nodes.  temperature: divides the draft's
    log-probabilities, so less than 1 makes it surer of itself and its trees narrower; None is
    ``GREEDY`` where the target takes its likeliest token, and 1 where it samples.
    """

    tau: float = 6.0
    top_k: int = 4
    chain_seed: bool = False
    temperature: float | None = None


def check_tree(adapter: str, options: TreeOptions) -> None:
    """Raises OptionError for a value out of range."""
    check_numbers(adapter, options, tau=(0.0, math.inf))
    check_integers(adapter, options, top_k=(1, MAX_NODES))
    if options.temperature is not None:
        check_numbers(adapter, options, temperature=(0.001, 1000.0))


def draft_temperature(options: TreeOptions, view: SequenceView) -> float:
    """What the draft's log-probabilities are divided by in a round."""
    if options.temperature is not None:
        return options.temperature
    return GREEDY if view.greedy else 1.0


def usable_rows(drafter: BlockDrafter, view: SequenceView) -> int:
    """How many rows of a block a round can use; 0 for none."""
    return max(min(drafter.depth, view.budget, view.max_depth), 0)


def tree_shape(options: TreeOptions, view: SequenceView, rows: int) -> TreeShape:
    """The limits of a round's tree."""
    return TreeShape(view.budget, rows, options.tau, options.chain_seed)
