"""What an H200 was to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpu.products import speeds_of_kinds

Figures = dict[str, Any]
"""Of a part; empty if it didn't run."""


@dataclass(frozen=True)
class Goal:
    """at_least: whether more is better.  find: from the figures of ``part``; None where it was not
    measured."""

    part: str
    name: str
    bound: float
    at_least: bool
    unit: str
    find: Callable[[Figures], float | None]

    @property
    def wanted(self) -> str:
        """In words."""
        return f"{'>=' if self.at_least else '<='} {self.bound:g}{self.unit}"


@dataclass(frozen=True)
class Judged:
    """complete: whether all cases of the part were reached."""

    goal: Goal
    found: float | None
    complete: bool

    @property
    def verdict(self) -> str:
        """In words."""
        if self.found is None:
            return "not measured"
        bound = self.goal.bound
        met = self.found >= bound if self.goal.at_least else self.found <= bound
        verdict = "met" if met else "not met"
        return verdict if self.complete else f"{verdict} in the cases that were reached"

    def report(self) -> dict[str, Any]:
        """JSON-able."""
        return {
            "name": self.goal.name,
            "bound": self.goal.bound,
            "at_least": self.goal.at_least,
            "found": self.found,
            "unit": self.goal.unit,
            "complete": self.complete,
            "verdict": self.verdict,
        }


def _over(values: list[float | None], choose: Callable[[list[float]], float]) -> float | None:
    """The chosen one, if all of them are known."""
    known = [value for value in values if value is not None]
    return choose(known) if known and len(known) == len(values) else None


def _growth(recurrence: Figures) -> float | None:
    rows = [row for row in recurrence.get("verify", []) if row["batch"] == 1]
    one = [row["verify"] for row in rows if row["nodes"] == 1]
    many = _over([row["verify"] for row in rows if row["nodes"] == 22], max)
    return None if not one or one[0] is None or many is None else many / one[0]


def _price(recurrence: Figures) -> float | None:
    rows = recurrence.get("verify", [])
    worst = _over([row["price"] for row in rows if row["nodes"] == 22], max)
    return None if worst is None else 100 * worst


def _streamed(products: Figures) -> float | None:
    bandwidth = products.get("copy_bandwidth")
    rows = [row for row in products.get("products", []) if row["n"] <= 16]
    speeds = [speed for _, _, speed in speeds_of_kinds(rows)]
    worst = _over(speeds, min)
    return None if worst is None or bandwidth is None else 100 * worst / bandwidth


def _plain(decoding: Figures) -> float | None:
    found: float | None = decoding.get("plain_tokens_per_second")
    return found


def _replay(decoding: Figures) -> float | None:
    rows = decoding.get("replay", [])
    return _over([row["speed_up"] for row in rows if row["accept"] == 5], max)


# part, name, bound, whether more is better, unit, what finds it
GOALS: tuple[Goal, ...] = (
    Goal("recurrence", "GDN verify, 22 nodes over 1, one sequence", 1.5, False, " x", _growth),
    Goal("recurrence", "price of exactness, 22 nodes", 5, False, " %", _price),
    Goal("products", "weights of a kind over copy, 1 to 16 rows", 70, True, " %", _streamed),
    Goal("decoding", "plain decoding, tokens/s", 100, True, "", _plain),
    Goal("decoding", "replay at accept length 5, best nodes", 3.5, True, " x", _replay),
)


def judge(results: dict[str, Figures]) -> list[Judged]:
    """All goals, from the parts' figures. Where cases vary, the worst one is judged."""
    parts = [(goal, results.get(goal.part, {})) for goal in GOALS]
    return [Judged(goal, goal.find(part), not part.get("left_out")) for goal, part in parts]
