"""What a step over so many rows takes, from what steps took lately."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import pairwise

WINDOW = 11
"""Samples per row count that the median is taken of."""

EXPIRY = 256
"""A row count that wasn't seen for so many samples is forgotten: the text got longer since."""

SURE = 3
OUTLIER = 1.5
"""A row count that was seen less than ``SURE`` times is believed to cost at most ``OUTLIER`` times
what the others suggest: a step may be slow for reasons of its own."""

CHANGE = 0.01
"""Part by which what a row count takes must have changed for the curve to be fitted anew."""

SHORTEST = 1e-12
"""Seconds that no step takes: a clock that shows so little stood still."""

REACH = 32
"""Rows that are tabulated at least."""


@dataclass
class _Point:
    """The last samples of one row count. seen: number of the latest sample.  value: what they say.
    fitted: what they said when the curve was fitted last."""

    samples: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))
    seen: int = 0
    value: float = 0.0
    fitted: float = 0.0

    def add(self, seconds: float, number: int) -> None:
        self.samples.append(seconds)
        self.seen = number
        # the lower median: of two samples the smaller, as the other one may be a first time
        self.value = sorted(self.samples)[(len(self.samples) - 1) // 2]


class CostCurve:
    """Seconds by row count, monotone, from noisy samples.

    base: smallest row count there is.  slope: part of the cost of ``base`` that each further row
    costs, as long as nothing else is known.  Between row counts that were seen the curve is
    linear, beyond the largest it goes on as steeply as from the smallest to the largest.
    """

    def __init__(self, base: int, slope: float) -> None:
        self._base = base
        self._slope = slope
        self._points: dict[int, _Point] = {}
        self._number = 0
        self._table: list[float] = []

    @property
    def empty(self) -> bool:
        """Whether nothing was measured yet."""
        return not self._points

    def add(self, rows: int, seconds: float) -> None:
        """A step over ``rows`` took ``seconds``; what is no time is ignored."""
        if rows < self._base or not SHORTEST < seconds < float("inf"):
            return
        self._number += 1
        point = self._points.setdefault(rows, _Point())
        point.add(seconds, self._number)
        if not self._number % WINDOW:
            oldest = self._number - EXPIRY
            self._points = {n: p for n, p in self._points.items() if p.seen > oldest}
        # a row count that was seen seldom counts differently with each sample
        seldom = len(point.samples) <= SURE
        if seldom or abs(point.value - point.fitted) > CHANGE * point.fitted:
            self._table = []

    def usual(self, rows: int) -> float | None:
        """Median of what a step over ``rows`` took lately, if any was seen."""
        point = self._points.get(rows)
        return None if point is None else point.value

    def age(self, rows: int) -> int | None:
        """How many samples ago ``rows`` was measured last; None: never, or too long ago."""
        point = self._points.get(rows)
        return None if point is None else self._number - point.seen

    def table(self, most: int) -> list[float]:
        """Seconds for ``base``, ``base`` + 1, ..., ``most`` rows, and maybe more; without samples,
        in units of the first. Not to be changed."""
        if len(self._table) <= most - self._base:
            self._table = self._tabulate(max(most, REACH))
        return self._table

    def _tabulate(self, most: int) -> list[float]:
        knots = self._fit()
        result: list[float] = []
        for (n0, y0), (n1, y1) in pairwise(knots):
            step = (y1 - y0) / (n1 - n0)
            result += [y0 + step * i for i in range(n1 - n0)]
        n_last, y_last = knots[-1]
        n_first, y_first = knots[0]
        if n_last > n_first:
            step = (y_last - y_first) / (n_last - n_first)
        else:
            step = y_first * self._slope
        result += [y_last + step * i for i in range(most - n_last + 1)]
        return result

    def measured(self) -> dict[int, float]:
        """Median seconds of the row counts that were seen."""
        return {rows: self._points[rows].value for rows in sorted(self._points)}

    def _fit(self) -> list[tuple[int, float]]:
        """Knots of the curve, the first one at ``base``."""
        if not self._points:
            return [(self._base, 1.0)]
        # pool adjacent violators: a row count that seems cheaper than a smaller one is averaged
        # with it
        pools: list[list[float]] = []  # sum of values, weight, first and last row count
        for rows, value, count in self._believed():
            pools.append([value * count, count, rows, rows])
            while len(pools) > 1 and pools[-2][0] * pools[-1][1] > pools[-1][0] * pools[-2][1]:
                total, weight, _, last = pools.pop()
                pools[-1][0] += total
                pools[-1][1] += weight
                pools[-1][3] = last
        knots: list[tuple[int, float]] = []
        for total, weight, first, last in pools:
            knots.append((int(first), total / weight))
            if last > first:
                knots.append((int(last), total / weight))
        first_rows, seconds = knots[0]
        if first_rows > self._base:
            scale = 1.0 + self._slope * (first_rows - self._base)
            knots.insert(0, (self._base, seconds / scale))
        return knots

    def _believed(self) -> list[tuple[int, float, int]]:
        """(rows, seconds, samples) by row count, what was seen seldom not higher than plausible."""
        points = []
        for n, point in sorted(self._points.items()):
            point.fitted = point.value
            points.append((n, point.value, len(point.samples)))
        result: list[tuple[int, float, int]] = []
        smallest = float("inf")
        for rows, value, count in reversed(points):
            # more rows took less
            if count < SURE and smallest < value:
                value = smallest
            smallest = min(smallest, value)
            result.append((rows, value, count))
        result.reverse()
        start, first, _ = result[0]
        slope = self._typical_slope(start, first, points)
        for i, (rows, value, count) in enumerate(result[1:], start=1):
            if count < SURE:
                before, least, _ = result[i - 1]
                most = least * rows / before if before else float("inf")
                if slope is not None:
                    most = min(most, first * (1.0 + slope * (rows - start)))
                result[i] = (rows, min(value, max(OUTLIER * most, least)), count)
        return result

    def _typical_slope(
        self, start: int, first: float, points: list[tuple[int, float, int]]
    ) -> float | None:
        """Part of the cost of the fewest rows that a row costs; a curve with no idea has none."""
        if self._slope > 1.0:
            return None
        slopes = [self._slope] * SURE
        for rows, value, _ in points:
            if rows > start:
                slopes.append((value / first - 1.0) / (rows - start))
        return sorted(slopes)[(len(slopes) - 1) // 2]
