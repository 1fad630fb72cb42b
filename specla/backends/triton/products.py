"""Weight products: a launch for the segments of all matrices of a kind, and one that ends them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from specla.backends.base import QuantisedRows, Weight
from specla.backends.compositions import Compositions, Operand
from specla.backends.triton.endings import add_segments, add_to, swiglu
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.segments import MOST, SEGMENTS, segments

SCRATCH_BYTES = 512 << 20
"""Of the segments at a time; more rows of activations are taken in several goes."""


class Products(Compositions):
    """Products as methods of the protocol."""

    _scratch: Scratch

    def linear_quantised(self, x: QuantisedRows, weight: Weight, out: Any) -> None:
        self.linear_group(Operand(None, x, exact=False), (weight,), (out,))

    def linear_float(self, x: Any, weight: Weight, out: Any) -> None:
        self.linear_group(Operand(x, None, exact=True), (weight,), (out,))

    def linear_group(self, x: Operand, weights: tuple[Weight, ...], outs: tuple[Any, ...]) -> None:
        for i in range(0, len(weights), MOST):
            for rows, partial in self._segments(x, weights[i : i + MOST]):
                add_segments(partial, [out[rows] for out in outs[i : i + MOST]])

    def linear_add(self, x: Operand, weight: Weight, room: Any, out: Any) -> None:
        for rows, partial in self._segments(x, (weight,)):
            add_to(partial, out[rows])

    def linear_swiglu(
        self, x: Operand, weights: tuple[Weight, Weight], rooms: tuple[Any, Any], out: Operand
    ) -> None:
        for rows, partial in self._segments(x, weights):
            swiglu(partial, _rows_of(out, rows))

    def _segments(self, x: Operand, weights: Sequence[Weight]) -> Iterator[tuple[slice, Any]]:
        """Segments of as many rows of x as the scratch memory has room for, in turn."""
        n = x.floats.shape[0] if x.quantised is None else x.quantised.scale.shape[0]
        each = 4 * SEGMENTS * sum(weight.source.rows for weight in weights)
        most = max(1, SCRATCH_BYTES // each)
        for start in range(0, n, most):
            rows = slice(start, min(start + most, n))
            part = _rows_of(x, rows)
            yield rows, segments(self._scratch, part.quantised, part.floats, weights)


def _rows_of(x: Operand, rows: slice) -> Operand:
    """A view."""
    floats, q = x.floats, x.quantised
    return Operand(
        None if floats is None else floats[rows],
        None if q is None else QuantisedRows(q.values[rows], q.scale[rows], q.sums[rows]),
        x.exact,
    )
