"""Plans for tests of how they come to the device."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np

from specla.core.banks import Banks, accept
from specla.core.plan import CommitPlan, Place, StepPlan, build_commit_plan, build_plan
from specla.core.topology import Forest


def step_plan(forest: Forest, layers: int = 2) -> StepPlan:
    """Of sequences in slots 0, 1, ..., with a factor pending in all layers."""
    ones = (1,) * layers
    places = [Place(b, 7 * b, b % 2, ones, ones) for b in range(len(forest.trees))]
    return build_plan(forest, places)


def commit_plan(*paths: tuple[int, ...]) -> CommitPlan:
    """Of sequences in slots 0, 1, ... that have 9 positions."""
    moves = [accept(Banks(), path) for path in paths]
    return build_commit_plan([(slot, 9, move) for slot, move in enumerate(moves)])


def same(uploaded: Any, plan: Any) -> bool:
    """Whether both have the same integers, array for array."""
    return all(
        np.array_equal(getattr(uploaded, field.name), getattr(plan, field.name))
        and np.shape(getattr(uploaded, field.name)) == np.shape(getattr(plan, field.name))
        for field in fields(plan)
    )
