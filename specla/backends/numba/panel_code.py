"""One panel of 16 rows times a few tokens, as LLVM code: the inner loop of every weight product.

Numba's loops don't become byte dot products, so this one loop is written with LLVM's builder. It
holds the contract's order (docs/arithmetic.md, section 5): terms of a block, 8 segments from left
to right, a halving tree over the segments. Floats carry no fast-math flags: nothing contracts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from specla.backends.numba import dot
from specla.backends.numba.features import LEVELS
from specla.backends.numba.panels import (
    BLOCK,
    F16,
    F32,
    LARGEST,
    Q4_0,
    Q5_K,
    Q6_K,
    Q8_0,
    QUANT_BYTES,
    SUPER_BLOCKS,
    WITH_MINIMUM,
)
from specla.backends.numba.primitives import widen_half

SEGMENTS = 8
I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, 16)
_alloca: Any = cgutils.alloca_once


@dataclass(frozen=True)
class Pointers:
    """Addresses (i64) of one panel and of the first token of the tile.

    x: prepared activations, corrections: int32 pairs, x_scale: float32; each [tokens, blocks, ...].
    """

    quants: Any
    subs: Any
    scales: Any
    x: Any
    corrections: Any
    x_scale: Any
    out: Any


class PanelCode:
    """Writes the code for one kind, one CPU level and a fixed number of tokens."""

    def __init__(self, builder: Any, kind: int, level: str, tokens: int, at: Pointers) -> None:
        self.builder, self.kind, self.tokens, self.at = builder, kind, tokens, at
        self.method = dot.method(level, LARGEST.get(kind, 255))

    def write(self, blocks: Any, run: Any) -> None:
        """The whole panel. blocks: number of blocks; run: blocks of a segment (both i64)."""
        b, zero = self.builder, ir.Constant(FLOATS, [0.0] * 16)
        self.blocks = blocks
        totals = [_alloca(b, FLOATS) for _ in range(self.tokens)]
        partial = _alloca(b, FLOATS, size=SEGMENTS * self.tokens)
        with cgutils.for_range(b, ir.Constant(I64, SEGMENTS)) as segment:
            for total in totals:
                b.store(zero, total)
            start = b.mul(segment.index, run)
            stop = b.add(start, run)
            stop = b.select(b.icmp_signed("<", stop, blocks), stop, blocks)
            step = ir.Constant(I64, 1)
            with cgutils.for_range_slice(b, start, stop, step, inc=True) as (block, _):
                for total, term in zip(totals, self._terms(block), strict=True):
                    b.store(b.fadd(b.load(total), term), total)
            for t, total in enumerate(totals):
                slot = b.add(b.mul(segment.index, self._int(self.tokens)), self._int(t))
                b.store(b.load(total), b.gep(partial, [slot]))
        for t in range(self.tokens):
            sums = [
                b.load(b.gep(partial, [self._int(s * self.tokens + t)])) for s in range(SEGMENTS)
            ]
            while len(sums) > 1:
                half = len(sums) // 2
                sums = [b.fadd(sums[i], sums[i + half]) for i in range(half)]
            b.store(sums[0], self._pointer(self.at.out, 64 * t, FLOATS), align=4)

    # -- addresses --------------------------------------------------------------------------

    def _int(self, value: int) -> Any:
        return ir.Constant(I64, value)

    def _pointer(self, base: Any, offset: int, kind: Any) -> Any:
        return self.builder.inttoptr(self.builder.add(base, self._int(offset)), kind.as_pointer())

    def _load(self, base: Any, offset: int, kind: Any, align: int = 1) -> Any:
        return self.builder.load(self._pointer(base, offset, kind), align=align)

    def _advance(self, base: Any, index: Any, size: int) -> Any:
        return self.builder.add(base, self.builder.mul(index, self._int(size)))

    def _of_token(self, base: Any, block: Any, size: int, t: int) -> Any:
        """Address of entry ``block`` of token t, entries of ``size`` bytes."""
        index = self.builder.add(self.builder.mul(self.blocks, self._int(t)), block)
        return self._advance(base, index, size)

    # -- terms of one block -------------------------------------------------------------------

    def _terms(self, block: Any) -> list[Any]:
        """The block's contribution for each token, 16 rows as a vector."""
        return self._float_terms(block) if self.kind >= F32 else self._integer_terms(block)

    def _float_terms(self, block: Any) -> list[Any]:
        size = 4 if self.kind == F32 else 2
        w = self._advance(self.at.quants, block, BLOCK * 16 * size)
        xs = [self._of_token(self.at.x, block, 4 * BLOCK, t) for t in range(self.tokens)]
        return [self._product_tree(w, x, 0, 1) for x in xs]

    def _product_tree(self, w: Any, x: Any, first: int, step: int) -> Any:
        """Halving tree over columns first, first + step, ...: depth first, for few registers."""
        b = self.builder
        if step == BLOCK:
            factor = dot.splat(b, self._load(x, 4 * first, FLOAT, 4))
            return b.fmul(self._float_weights(w, first), factor)
        lower = self._product_tree(w, x, first, 2 * step)
        return b.fadd(lower, self._product_tree(w, x, first + step, 2 * step))

    def _float_weights(self, w: Any, column: int) -> Any:
        b = self.builder
        if self.kind == F32:
            return self._load(w, 64 * column, FLOATS, 4)
        raw = self._load(w, 32 * column, ir.VectorType(I16, 16), 2)
        if self.kind == F16:
            return widen_half(b, raw)
        wide = b.zext(raw, dot.INTS)
        return b.bitcast(b.shl(wide, ir.Constant(dot.INTS, [16] * 16)), FLOATS)

    def _integer_terms(self, block: Any) -> list[Any]:
        b = self.builder
        sums = self._block_sums(block)
        scales = self._advance(
            self.at.scales,
            b.lshr(block, self._int(3)) if self.kind in SUPER_BLOCKS else block,
            64 if self.kind in WITH_MINIMUM else 32,
        )
        half = ir.VectorType(I16, 16)
        d = widen_half(b, self._load(scales, 0, half, 2))
        minimum = None
        if self.kind in WITH_MINIMUM:
            minimum = widen_half(b, self._load(scales, 32, half, 2)), self._sub(block, 1)
        terms = []
        for t in range(self.tokens):
            s = dot.splat(b, self._load(self._of_token(self.at.x_scale, block, 4, t), 0, FLOAT, 4))
            term = b.fmul(sums[t], b.fmul(d, s))
            if minimum is not None:
                dmin, m = minimum
                at = self._of_token(self.at.corrections, block, 8, t)
                x_sum = b.sitofp(self._load(at, 4, I32, 4), FLOAT)
                offset = b.fmul(m, dot.splat(b, x_sum))  # an integer below 2^18: exact
                term = b.fsub(term, b.fmul(offset, b.fmul(dmin, s)))
            terms.append(term)
        return terms

    def _sub(self, block: Any, which: int) -> Any:
        """A small integer of each row as floats."""
        b = self.builder
        at = self._advance(self.at.subs, block, 32)
        raw = self._load(at, 16 * which, ir.VectorType(I8, 16))
        return b.sitofp(raw, FLOATS) if self.kind == Q6_K else b.uitofp(raw, FLOATS)

    def _block_sums(self, block: Any) -> list[Any]:
        """f32(I) of each token. Sub-scales are multiplied in as floats: below 2^24, so exact."""
        b = self.builder
        size = 32 * dot.words_per_quad(self.method)
        vectors = self._weight_vectors(block)
        halves = 2 if self.kind == Q6_K else 1
        x = [self._of_token(self.at.x, block, size, t) for t in range(self.tokens)]
        offsets = [self._of_token(self.at.corrections, block, 8, t) for t in range(self.tokens)]
        results: list[Any] = [None] * self.tokens
        for half in range(halves):
            acc = [
                ir.Constant(dot.INTS, [0] * 16)
                if self.kind in WITH_MINIMUM
                else dot.splat(b, self._load(offset, 4 * half, I32, 4))
                for offset in offsets
            ]
            quads = 8 // halves
            self._add_quads(acc, vectors, x, range(half * quads, (half + 1) * quads))
            for t in range(self.tokens):
                value = b.sitofp(acc[t], FLOATS)
                if self.kind in SUPER_BLOCKS:
                    value = b.fmul(value, self._sub(block, half))
                results[t] = value if half == 0 else b.fadd(results[t], value)
        return results

    def _add_quads(self, acc: list[Any], vectors: list[Any], x: list[Any], quads: range) -> None:
        """Add the dots of some quads to each token's sums."""
        b = self.builder
        if self.method != "bytes":
            for j in quads:
                w = dot.split_weights(b, self.method, vectors[j])
                for t in range(self.tokens):
                    acc[t] = dot.accumulate(b, self.method, acc[t], w, self._quad(x[t], j))
            return
        limit = dot.quads_per_sum(LARGEST[self.kind])
        for start in range(quads.start, quads.stop, limit):
            sums: list[Any] = [None] * self.tokens
            for j in range(start, min(start + limit, quads.stop)):
                for t in range(self.tokens):
                    short = dot.short_dot(b, vectors[j], *self._quad(x[t], j))
                    sums[t] = short if sums[t] is None else b.add(sums[t], short)
            for t in range(self.tokens):
                acc[t] = dot.widen(b, acc[t], sums[t])

    def _quad(self, x: Any, j: int) -> tuple[Any, ...]:
        words = dot.words_per_quad(self.method)
        return tuple(self._load(x, 4 * (words * j + i), I32, 4) for i in range(words))

    def _weight_vectors(self, block: Any) -> list[Any]:
        """The eight vectors of unsigned bytes (panels.py has the layout)."""
        b = self.builder
        at = self._advance(self.at.quants, block, QUANT_BYTES[self.kind])
        if self.kind == Q8_0:
            return [self._load(at, 64 * j, dot.BYTES) for j in range(8)]

        def constant(value: int) -> Any:
            return ir.Constant(dot.BYTES, [value] * 64)

        packed = [self._load(at, 64 * j, dot.BYTES) for j in range(4)]
        vectors = [b.and_(p, constant(15)) for p in packed]
        vectors += [b.lshr(p, constant(4)) for p in packed]
        if self.kind == Q5_K:
            high = self._load(at, 256, dot.BYTES)
            for j in range(8):
                bit = b.and_(b.lshr(high, constant(j)), constant(1))
                vectors[j] = b.or_(vectors[j], b.shl(bit, constant(4)))
        elif self.kind == Q6_K:
            planes = [self._load(at, 256 + 64 * p, dot.BYTES) for p in range(2)]
            for j in range(8):
                two = b.and_(b.lshr(planes[j // 4], constant(2 * (j % 4))), constant(3))
                vectors[j] = b.or_(vectors[j], b.shl(two, constant(4)))
        return vectors


def correction_factors(kind: int) -> tuple[int, int, int, int]:
    """How the two corrections follow from the sums of a block's halves (first, second):
    (a, b, c, d) for a * first + b * second and c * first + d * second."""
    if kind == Q8_0:
        return -128, -128, 0, 0
    if kind == Q4_0:
        return -8, -8, 0, 0
    if kind == Q6_K:
        return -32, 0, 0, -32
    return 0, 0, 1, 1  # no offset; the sum for the minimum


def _panel(
    typing_context: Any,
    kind: Any,
    level: Any,
    tokens: Any,
    quants: Any,
    subs: Any,
    scales: Any,
    x: Any,
    corrections: Any,
    x_scale: Any,
    out: Any,
    blocks: Any,
    run: Any,
) -> Any:
    """Code of one panel. kind, level (index in LEVELS) and tokens are literals, the rest int64:
    addresses, then the number of blocks and of blocks in a segment. out [tokens, 16]."""
    signature = types.void(kind, level, tokens, *[types.int64] * 9)
    chosen = kind.literal_value, LEVELS[level.literal_value], tokens.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = PanelCode(builder, *chosen, Pointers(*arguments[3:10]))
        code.write(*arguments[10:])
        return context.get_dummy_value()

    return signature, generate


panel: Any = intrinsic(prefer_literal=True)(_panel)
