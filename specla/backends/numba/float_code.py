"""Terms of a block of a float kind (docs/arithmetic.md, section 5) for a tile of tokens: halving
trees over 32 products.

A vector has 8 columns of a row, so the first two levels of a row's tree are sums of vectors. The
other three are done for 8 rows at once: each level's shuffles bring two rows into one vector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from specla.backends.numba.panel_code import FLOAT, I16, I32, Output, PanelCode
from specla.backends.numba.panels import BF16, BLOCK, F32, ROWS
from specla.backends.numba.primitives import widen_half

EIGHT = ir.VectorType(FLOAT, 8)
EIGHT_BITS = ir.VectorType(I32, 8)
HIGH = ir.Constant(EIGHT_BITS, [0xFFFF0000] * 8)
GROUP = 8
"""Rows whose trees end in one vector."""
ORDER = (0, 4, 1, 5, 2, 6, 3, 7)
"""In which rows come together, two and two, so that their trees end in ascending order."""
FOLDS = {
    2: ((0, 1, 2, 3, 8, 9, 10, 11), (4, 5, 6, 7, 12, 13, 14, 15)),
    4: ((0, 1, 8, 9, 4, 5, 12, 13), (2, 3, 10, 11, 6, 7, 14, 15)),
    8: ((0, 2, 8, 10, 4, 6, 12, 14), (1, 3, 9, 11, 5, 7, 13, 15)),
}
"""What is added to what, out of two vectors, to have that many rows in one."""


@dataclass(frozen=True)
class FloatAddresses:
    """Of one panel and of the first token of the tile (i64), tokens ``x_step`` bytes apart.
    fresh: not 0 for the panel's first tile."""

    quants: Any
    x: Any
    x_step: Any
    fresh: Any


class FloatCode(PanelCode):
    """One kind, at any CPU level."""

    def __init__(
        self, builder: Any, kind: int, tokens: int, at: FloatAddresses, output: Output
    ) -> None:
        super().__init__(builder, tokens, output)
        self.kind, self.at = kind, at
        self.row_bytes = BLOCK * (4 if kind == F32 else 2)

    def write_block(self, block: Any, add: Callable[[int, Any, Any], None]) -> None:
        b, size = self.builder, ROWS * self.row_bytes
        weights = self.advance(self.at.quants, block, size)
        with b.if_then(b.icmp_unsigned("!=", self.at.fresh, self.number(0))):
            self.prefetch(self.advance(weights, self.blocks, size), size)
        first = self.advance(self.at.x, block, 4 * BLOCK)
        xs = [b.add(first, b.mul(self.at.x_step, self.number(t))) for t in range(self.tokens)]

        def rows(group: Any) -> None:
            at = self.advance(weights, group, GROUP * self.row_bytes)
            terms = self._merged(at, xs, ORDER)
            for t, term in enumerate(terms):
                add(t, term, b.mul(group, self.number(4 * GROUP)))

        self.repeat(ROWS // GROUP, rows)

    def _merged(self, at: Any, xs: list[Any], rows: tuple[int, ...]) -> list[Any]:
        """For each token: the trees of the named rows of a group, all in one vector."""
        if len(rows) == 1:
            return self._row(self.builder.add(at, self.number(rows[0] * self.row_bytes)), xs)
        half, b = len(rows) // 2, self.builder
        low, high = self._merged(at, xs, rows[:half]), self._merged(at, xs, rows[half:])
        orders = [_lanes(order) for order in FOLDS[len(rows)]]
        return [
            b.fadd(*(b.shuffle_vector(u, v, order) for order in orders))
            for u, v in zip(low, high, strict=True)
        ]

    def _row(self, at: Any, xs: list[Any]) -> list[Any]:
        """For each token: a row's products, added up to 8 columns."""
        b, weights, terms = self.builder, self._weights(at), []
        for x in xs:
            if self.tokens > 2:  # or LLVM would keep all of x in registers that it hasn't got
                x = self.opaque(x)
            products = [b.fmul(w, self.load(x, 32 * i, EIGHT, 4)) for i, w in enumerate(weights)]
            first, second, third, fourth = products
            terms.append(b.fadd(b.fadd(first, third), b.fadd(second, fourth)))
        return terms

    def _weights(self, at: Any) -> list[Any]:
        """A row's block, 8 columns each."""
        b = self.builder
        if self.kind == F32:
            return [self.load(at, 32 * i, EIGHT, 4) for i in range(4)]
        if self.kind != BF16:
            eight = ir.VectorType(I16, 8)
            return [widen_half(b, self.load(at, 16 * i, eight, 2)) for i in range(4)]
        # column i of 16 in the lower, column i + 8 in the upper half of a word
        words = [self.load(at, 32 * i, EIGHT_BITS, 4) for i in range(2)]
        sixteen = ir.Constant(EIGHT_BITS, [16] * 8)
        halves = [half for word in words for half in (b.shl(word, sixteen), b.and_(word, HIGH))]
        return [b.bitcast(half, EIGHT) for half in halves]


def _lanes(order: tuple[int, ...]) -> Any:
    return ir.Constant(ir.VectorType(I32, len(order)), list(order))
