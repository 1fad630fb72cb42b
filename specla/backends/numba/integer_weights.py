"""A block of an integer kind as code sees it: vectors of bytes, and what goes with them.

A block of a kind with high bits takes long to decode, so it is done once for all tiles of tokens:
the first one writes the block's *record*, vectors of 64 bytes that all of them read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from specla.backends.numba import dot
from specla.backends.numba.panel_code import FLOATS, HALVES, I8, I32, Output, PanelCode
from specla.backends.numba.panels import (
    Q5_K,
    Q6_K,
    Q8_0,
    QUANT_BYTES,
    SUPER_BLOCKS,
    WITH_MINIMUM,
)
from specla.backends.numba.primitives import widen_half

HIGH_BITS = {Q5_K: 1, Q6_K: 2}
FEW_TOKENS = 2
"""Up to here a tile has registers enough to do without records and loops."""
RECORD_BYTES = 64 * 12
D, DMIN, MINIMA, FACTORS, QUADS = 0, 64, 128, 128, 256
"""Where a record has what: d, dmin [16 floats], minima [16 pairs of int16]; Q6_K, without a
minimum, has the sub-scales of half 0 and 1 at FACTORS, the others at FACTORS + 64; from QUADS on
the eight vectors of weights of a kind with high bits."""


@dataclass(frozen=True)
class IntegerAddresses:
    """Of one panel and of the first token of the tile (i64). Tokens follow each other in x, x_scale
    and x_sums, which have an entry per block.

    records: of blocks, ``record_step`` bytes apart. fresh: not 0 for the panel's
    first tile, which writes them.
    """

    quants: Any
    subs: Any
    scales: Any
    x: Any
    x_scale: Any
    x_sums: Any
    records: Any
    record_step: Any
    fresh: Any


class IntegerWeights(PanelCode):
    """Weights of one kind, for a number of tokens. Call ``start_block`` for each block first."""

    def __init__(
        self, builder: Any, kind: int, tokens: int, at: IntegerAddresses, output: Output
    ) -> None:
        super().__init__(builder, tokens, output)
        self.kind, self.at = kind, at
        self.direct = kind not in HIGH_BITS or tokens <= FEW_TOKENS

    def start_block(self, block: Any) -> None:
        """Decode what all tokens need of a block: into its record, if this is the first tile, or
        into registers. The next panel's block comes closer meanwhile."""
        b, self.block, self._parts = self.builder, block, {}
        self.weights = self.advance(self.at.quants, block, QUANT_BYTES[self.kind])
        self.subs = self.advance(self.at.subs, block, 32)
        self.record = b.add(self.at.records, b.mul(block, self.at.record_step))
        if self.direct:
            self._parts = self._decoded()
        with b.if_then(b.icmp_unsigned("!=", self.at.fresh, self.number(0))):
            size = QUANT_BYTES[self.kind]
            self.prefetch(self.advance(self.weights, self.blocks, size), size)
            if not self.direct:
                for offset, value in self._decoded().items():
                    b.store(value, self.pointer(self.record, offset, value.type), 1)

    # -- scales ----------------------------------------------------------------------------------

    def scale(self) -> Any:
        """d of each row."""
        if self.kind in SUPER_BLOCKS:
            return self._recorded(D, FLOATS)
        at = self.advance(self.at.scales, self.block, 32)
        return widen_half(self.builder, self.load(at, 0, HALVES, 2))

    def minimum(self) -> tuple[Any, Any]:
        """dmin of each row, and the block's minimum twice as int16."""
        return self._recorded(DMIN, FLOATS), self._recorded(MINIMA, dot.PAIRS)

    def factors(self, half: int) -> Any:
        """Sub-scales of a half, twice as int16."""
        first = FACTORS if self.kind == Q6_K and half == 0 else FACTORS + 64
        return self._recorded(first, dot.PAIRS)

    def sub(self, which: int) -> Any:
        """A small integer of each row, as int16."""
        raw = self.load(self.subs, 16 * which, ir.VectorType(I8, 16))
        extend = self.builder.sext if self.kind == Q6_K else self.builder.zext
        return extend(raw, HALVES)

    def both(self, first: Any, second: Any) -> Any:
        """Pairs of int16 for each row: first[r], second[r]."""
        order = [r + 16 * i for r in range(16) for i in (0, 1)]
        mask = ir.Constant(ir.VectorType(I32, 32), order)
        return self.builder.shuffle_vector(first, second, mask)

    # -- weights as vectors of bytes (panels.py has the layout) -----------------------------------

    def each_quads(self, body: Callable[[int, list[tuple[Any, Any]]], None]) -> None:
        """body(half, [(weight vector, quad), ...]) over all eight quads, one or two at a time: of
        one half (0..3 or 4..7) for kinds with high bits, whose sums need that."""
        b = self.builder

        def one(j: Any) -> None:
            body(0, [(self.load(self.advance(self.weights, j, 64), 0, dot.BYTES), j)])

        def low_and_high(j: Any) -> None:
            packed = self.load(self.advance(self.weights, j, 64), 0, dot.BYTES)
            quads = (j, b.add(j, self.number(4)))
            body(0, [(self._shifted(packed, -4 * i, 15), quads[i]) for i in (0, 1)])

        def two(i: Any, half: int) -> None:
            if self._parts:
                at = QUADS + 256 * half + 128 * i.constant
                vectors = [self._parts[at + 64 * k] for k in (0, 1)]
            else:
                base = self.advance(self.record, i, 128)
                at = QUADS + 256 * half
                vectors = [self.load(base, at + 64 * k, dot.BYTES) for k in (0, 1)]
            first = b.add(b.mul(i, self.number(2)), self.number(4 * half))
            body(half, [(vectors[0], first), (vectors[1], b.add(first, self.number(1)))])

        unroll = self.tokens <= FEW_TOKENS
        if self.kind == Q8_0:
            self.repeat(8, one, unroll=unroll)
        elif self.kind not in HIGH_BITS:
            self.repeat(4, low_and_high, unroll=unroll)
        else:
            self.repeat(2, lambda i: two(i, 0), unroll=unroll)
            self.repeat(2, lambda i: two(i, 1), unroll=unroll)

    def _shifted(self, vector: Any, left: int, mask: int) -> Any:
        """Bits of bytes, shifted (to the right if negative) and masked."""
        b = self.builder
        if left:
            pairs = b.bitcast(vector, dot.PAIRS)
            shift = b.shl if left > 0 else b.lshr
            vector = b.bitcast(shift(pairs, ir.Constant(dot.PAIRS, [abs(left)] * 32)), dot.BYTES)
        return b.and_(vector, ir.Constant(dot.BYTES, [mask] * 64))

    # -- records ----------------------------------------------------------------------------------

    def _recorded(self, offset: int, kind: Any) -> Any:
        return self._parts.get(offset) or self.load(self.record, offset, kind)

    def _decoded(self) -> dict[int, Any]:
        """The vectors of a record by their place."""
        if self.kind not in SUPER_BLOCKS:
            return {}
        b, count = self.builder, 2 if self.kind in WITH_MINIMUM else 1
        scales = self.advance(self.at.scales, b.lshr(self.block, self.number(3)), 32 * count)
        parts = {
            place: widen_half(b, self.load(scales, 32 * i, HALVES, 2))
            for i, place in enumerate((D, DMIN)[:count])
        }
        places = (FACTORS, FACTORS + 64) if self.kind == Q6_K else (FACTORS + 64, MINIMA)
        for which, place in enumerate(places):
            sub = self.sub(which)
            parts[place] = self.both(sub, sub)
        if self.kind in HIGH_BITS:
            parts |= {QUADS + 64 * j: vector for j, vector in enumerate(self._with_high_bits())}
        return parts

    def _with_high_bits(self) -> list[Any]:
        """All weights of a kind that has them."""
        b, bits, vectors = self.builder, HIGH_BITS[self.kind], []
        for j in range(8):
            low = self._shifted(self.load(self.weights, 64 * (j % 4), dot.BYTES), -4 * (j // 4), 15)
            plane = self.load(self.weights, 320 if bits == 2 and j >= 4 else 256, dot.BYTES)
            at = bits * j % 8
            vectors.append(b.or_(low, self._shifted(plane, 4 - at, (2**bits - 1) << 4)))
        return vectors
