"""Terms of a block of an integer kind (docs/arithmetic.md, section 5) for a tile of tokens.

With I the exact integer sum: f32(I) * (d * s), for Q4_K and Q5_K less f32(m * sum(q)) * (dmin * s).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir

from specla.backends.numba import dot
from specla.backends.numba.integer_weights import IntegerAddresses, IntegerWeights
from specla.backends.numba.panel_code import FLOAT, FLOATS, I16, I32, Output
from specla.backends.numba.panels import (
    LARGEST,
    OFFSET,
    Q4_0,
    Q6_K,
    Q8_0,
    SUPER_BLOCKS,
    WITH_MINIMUM,
)
from specla.backends.numba.vector_code import splat


class IntegerCode(IntegerWeights):
    """One kind at one CPU level."""

    def __init__(
        self,
        builder: Any,
        kind: int,
        level: str,
        tokens: int,
        at: IntegerAddresses,
        output: Output,
    ) -> None:
        super().__init__(builder, kind, tokens, at, output)
        self.method = dot.method(level, LARGEST[kind])
        self.entry_bytes = 64 if dot.takes_pairs(self.method) else 32

    def write_block(self, block: Any, add: Callable[[int, Any, Any], None]) -> None:
        b, tokens, start = self.builder, range(self.tokens), self.number(0)
        self.start_block(block)
        self.entries = [b.add(b.mul(self.blocks, self.number(t)), block) for t in tokens]
        self.x = [self.advance(self.at.x, e, self.entry_bytes) for e in self.entries]
        sums = self._short_sums() if self.method == "bytes" else self._wide_sums()
        d = self.scale()
        minimum = self.minimum() if self.kind in WITH_MINIMUM else None
        for t in tokens:
            s = self._x_scale(t)
            term = b.fmul(sums(t), b.fmul(d, s))
            if minimum is not None:
                dmin, minima = minimum
                offset = dot.pair_dot(b, self.method, minima, self._x_sums(t))  # below 2^18
                term = b.fsub(term, b.fmul(b.sitofp(offset, FLOATS), b.fmul(dmin, s)))
            add(t, term, start)

    # -- activations ----------------------------------------------------------------------------

    def _x_scale(self, t: int) -> Any:
        at = self.advance(self.at.x_scale, self.entries[t], 4)
        return splat(self.builder, self.load(at, 0, FLOAT, 4), 16)

    def _x_sums(self, t: int) -> Any:
        """Sums of both halves of the token's block, a word of int16."""
        return self.load(self.advance(self.at.x_sums, self.entries[t], 4), 0, I32, 4)

    def _quad(self, t: int, j: Any, size: int = 4, offset: int = 0) -> Any:
        """Word of the token's activations for quad j (i64), ``size`` bytes each."""
        return self.load(self.advance(self.x[t], j, size), offset, I32, 4)

    # -- f32(I) of each token, by method -----------------------------------------------------------

    def _short_sums(self) -> Callable[[int], Any]:
        """Method ``bytes``. The sub-scales enter where int16 sums are widened."""
        b, whole = self.builder, dot.quads_per_sum(LARGEST[self.kind]) >= 8
        kind = dot.PAIRS if whole else dot.INTS
        sums = self.cells([ir.Constant(kind, [0] * kind.count)] * self.tokens)

        def add(half: int, quads: list[tuple[Any, Any]]) -> None:
            factors = None if whole else self.factors(half)
            for t in range(self.tokens):
                shorts = [dot.short_dot(b, w, self._quad(t, j)) for w, j in quads]
                if whole:
                    for short in shorts:
                        b.store(b.add(b.load(sums[t]), short), sums[t])
                else:
                    term = dot.widen(b, b.add(*shorts), factors)
                    b.store(b.add(b.load(sums[t]), term), sums[t])

        self.each_quads(add)
        ones = ir.Constant(dot.PAIRS, [1] * 32)
        factors = self.factors(0) if self.kind in SUPER_BLOCKS and whole else ones
        offsets = self._offsets()

        def result(t: int) -> Any:
            total = b.load(sums[t])
            if whole:
                total = dot.widen(b, total, factors)
            if offsets is not None:
                total = b.sub(total, dot.pair_dot(b, self.method, offsets, self._x_sums(t)))
            return b.sitofp(total, FLOATS)

        return result

    def _offsets(self) -> Any:
        """What the halves' sums of activations count for too much, as pairs; None if nothing."""
        b = self.builder
        if self.kind == Q6_K:
            subs = self.both(self.sub(0), self.sub(1))
            return b.mul(subs, ir.Constant(dot.PAIRS, [OFFSET[Q6_K]] * 32))
        return ir.Constant(dot.PAIRS, [OFFSET[Q4_0]] * 32) if self.kind == Q4_0 else None

    def _wide_sums(self) -> Callable[[int], Any]:
        """All other methods. Sub-scales are multiplied in as floats: below 2^24, so exact."""
        b = self.builder
        halves = (0, 1) if self.kind == Q6_K else (0,)
        sums = [self.cells([self._start(t, half) for t in range(self.tokens)]) for half in halves]

        def add(half: int, quads: list[tuple[Any, Any]]) -> None:
            for vector, j in quads:
                self._accumulate(vector, j, sums[half % len(halves)])

        self.each_quads(add)
        subs = None
        if self.kind in SUPER_BLOCKS:
            subs = [b.sitofp(self.sub(half), FLOATS) for half in halves]

        def result(t: int) -> Any:
            parts = [self._whole(b.load(sums[half][t])) for half in halves]
            if subs is not None:
                parts = [b.fmul(part, sub) for part, sub in zip(parts, subs, strict=True)]
            return parts[0] if len(parts) == 1 else b.fadd(*parts)

        return result

    def _start(self, t: int, half: int) -> Any:
        """What a sum starts from: methods with unsigned weights correct for the offset."""
        if dot.takes_pairs(self.method) or not OFFSET[self.kind]:
            return ir.Constant(dot.INTS, [0] * 16)
        b, at = self.builder, self.advance(self.at.x_sums, self.entries[t], 4)
        count = 1 if self.kind == Q6_K else 2
        parts = [b.sext(self.load(at, 2 * (half + i), I16, 2), I32) for i in range(count)]
        total = parts[0] if count == 1 else b.add(*parts)
        return splat(b, b.mul(total, ir.Constant(I32, -OFFSET[self.kind])), 16)

    def _accumulate(self, vector: Any, j: Any, sums: list[Any]) -> None:
        """Add a quad's dot to every token's sum."""
        b, pairs = self.builder, dot.takes_pairs(self.method)
        signed = self.kind == Q8_0
        if pairs != signed:
            offset = ir.Constant(dot.BYTES, [OFFSET[self.kind]] * 64)
            vector = b.sub(vector, offset)  # modulo 256: the same as adding 128
        operands = dot.pair_operands(b, vector) if pairs else (vector,)
        for i, w in enumerate(operands):
            for t, cell in enumerate(sums):
                word = self._quad(t, j, self.entry_bytes // 8, 4 * i)
                if pairs:
                    total = b.add(b.load(cell), dot.pair_dot(b, self.method, w, word))
                else:
                    total = dot.byte_dot(b, self.method, b.load(cell), w, word)
                b.store(total, cell)

    def _whole(self, total: Any) -> Any:
        """A sum as floats."""
        b = self.builder
        if dot.takes_pairs(self.method):
            total = b.ashr(total, ir.Constant(dot.INTS, [dot.PAIR_SHIFT] * 16))
        return b.sitofp(total, FLOATS)
