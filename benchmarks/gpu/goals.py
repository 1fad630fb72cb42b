"""What an H200 was to reach, and whether it did."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gpu.products import speeds_of_kinds

Results = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Goal:
    """found: None where it was not measured.  at_least: whether more is better.  complete: whether
    all cases of the part were reached."""

    name: str
    bound: float
    at_least: bool
    found: float | None
    unit: str
    complete: bool = True

    @property
    def verdict(self) -> str:
        """In words."""
        if self.found is None:
            return "not measured"
        met = self.found >= self.bound if self.at_least else self.found <= self.bound
        verdict = "met" if met else "not met"
        return verdict if self.complete else f"{verdict} in the cases that were reached"

    @property
    def wanted(self) -> str:
        """In words."""
        return f"{'>=' if self.at_least else '<='} {self.bound:g}{self.unit}"

    def report(self) -> dict[str, Any]:
        """JSON-able."""
        return {**asdict(self), "verdict": self.verdict}


def goals(results: Results) -> list[Goal]:
    """All of them, from the parts' figures. Where cases vary, the worst one is judged."""

    def goal(part: str, name: str, wanted: tuple[float, bool, str], found: float | None) -> Goal:
        bound, at_least, unit = wanted
        return Goal(name, bound, at_least, found, unit, not results.get(part, {}).get("left_out"))

    growth, price = "GDN verify, 22 nodes over 1, one sequence", "price of exactness, 22 nodes"
    streamed = "weights of a kind over copy, 1 to 16 rows"
    plain, replay = "plain decoding, tokens/s", "replay at accept length 5, best nodes"
    return [
        goal("recurrence", growth, (1.5, False, " x"), _growth(results)),
        goal("recurrence", price, (5, False, " %"), _price(results)),
        goal("products", streamed, (70, True, " %"), _streamed(results)),
        goal("decoding", plain, (100, True, ""), _plain(results)),
        goal("decoding", replay, (3.5, True, " x"), _replay(results)),
    ]


def _rows(results: Results, part: str, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = results.get(part, {}).get(name, [])
    return found


def _over(values: list[float | None], choose: Callable[[list[float]], float]) -> float | None:
    """The chosen one, if all of them are known."""
    known = [value for value in values if value is not None]
    return choose(known) if known and len(known) == len(values) else None


def _growth(results: Results) -> float | None:
    rows = [row for row in _rows(results, "recurrence", "verify") if row["batch"] == 1]
    one = [row["verify"] for row in rows if row["nodes"] == 1]
    many = _over([row["verify"] for row in rows if row["nodes"] == 22], max)
    return None if not one or one[0] is None or many is None else many / one[0]


def _price(results: Results) -> float | None:
    rows = _rows(results, "recurrence", "verify")
    worst = _over([row["price"] for row in rows if row["nodes"] == 22], max)
    return None if worst is None else 100 * worst


def _streamed(results: Results) -> float | None:
    bandwidth = results.get("products", {}).get("copy_bandwidth")
    rows = [row for row in _rows(results, "products", "products") if row["n"] <= 16]
    speeds = [speed for _, _, speed in speeds_of_kinds(rows)]
    worst = _over(speeds, min)
    return None if worst is None or bandwidth is None else 100 * worst / bandwidth


def _plain(results: Results) -> float | None:
    found: float | None = results.get("decoding", {}).get("plain_tokens_per_second")
    return found


def _replay(results: Results) -> float | None:
    rows = _rows(results, "decoding", "replay")
    return _over([row["speed_up"] for row in rows if row["accept"] == 5], max)
