"""Weight products: a launch for the segments of all matrices of a kind, and one that ends them."""

from __future__ import annotations

from typing import Any

from specla.backends.base import QuantisedRows, Weight
from specla.backends.compositions import Compositions, Operand
from specla.backends.triton.endings import add_segments, add_to, swiglu
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.segments import MOST, segments


class Products(Compositions):
    """Products as methods of the protocol."""

    _scratch: Scratch

    def linear_quantised(self, x: QuantisedRows, weight: Weight, out: Any) -> None:
        add_segments(segments(self._scratch, x, None, (weight,)), (out,))

    def linear_float(self, x: Any, weight: Weight, out: Any) -> None:
        add_segments(segments(self._scratch, None, x, (weight,)), (out,))

    def linear_group(self, x: Operand, weights: tuple[Weight, ...], outs: tuple[Any, ...]) -> None:
        for i in range(0, len(weights), MOST):
            partial = segments(self._scratch, x.quantised, x.floats, weights[i : i + MOST])
            add_segments(partial, outs[i : i + MOST])

    def linear_add(self, x: Operand, weight: Weight, room: Any, out: Any) -> None:
        add_to(segments(self._scratch, x.quantised, x.floats, (weight,)), out)

    def linear_swiglu(
        self, x: Operand, weights: tuple[Weight, Weight], rooms: tuple[Any, Any], out: Operand
    ) -> None:
        swiglu(segments(self._scratch, x.quantised, x.floats, weights), out)
