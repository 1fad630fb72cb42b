"""One panel of 16 rows times a few tokens, as LLVM code: the inner loop of every weight product.

Numba's loops don't become byte dot products, so this one loop is written with LLVM's builder. It
holds the contract's order (docs/arithmetic.md, section 5): terms of a block, 8 segments from left
to right, a halving tree over the segments. Floats carry no fast-math flags: nothing contracts.

The totals of the segments lie in memory, so that all registers are free for a block's own sums.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import cgutils

from specla.backends.numba.vector_code import SECOND_LEVEL, opaque, prefetch_line

SEGMENTS = 8
PARTIAL_BYTES = 64 * SEGMENTS
"""Partial sums of one token."""
I8, I16, I32, I64 = (ir.IntType(n) for n in (8, 16, 32, 64))
FLOAT = ir.FloatType()
FLOATS = ir.VectorType(FLOAT, 16)
HALVES = ir.VectorType(I16, 16)
_alloca: Any = cgutils.alloca_once


@dataclass(frozen=True)
class Output:
    """Where results go (addresses, i64): 16 floats for each token, ``step`` bytes apart.

    partial: scratch, PARTIAL_BYTES per token.
    """

    partial: Any
    out: Any
    step: Any


class PanelCode(ABC):
    """Writes the code for one kind and a fixed number of tokens."""

    def __init__(self, builder: Any, tokens: int, output: Output) -> None:
        self.builder, self.tokens, self.output = builder, tokens, output

    @abstractmethod
    def write_block(self, block: Any, add: Callable[[int, Any, Any], None]) -> None:
        """Code for one block. add(t, term, at): takes the terms of some rows for token t, as a
        vector; at: bytes from the first row's total to theirs (i64)."""

    def write(self, blocks: Any, run: Any) -> None:
        """The whole panel. blocks: number of blocks; run: blocks of a segment (both i64)."""
        b, self.blocks, size = self.builder, blocks, 64 * self.tokens
        for offset in range(0, SEGMENTS * size, 64):
            zero = ir.Constant(FLOATS, [0.0] * 16)
            b.store(zero, self.pointer(self.output.partial, offset, FLOATS), 4)
        # one loop over all blocks: leaving an inner one for each segment would cost more
        segment, left = self.cells([self.output.partial, run])
        with cgutils.for_range(b, blocks) as loop:
            totals = b.load(segment)

            def add(t: int, term: Any, at: Any) -> None:
                total = self.pointer(b.add(totals, at), 64 * t, term.type)
                b.store(b.fadd(b.load(total, align=4), term), total, 4)

            self.write_block(loop.index, add)
            remaining = b.sub(b.load(left), self.number(1))
            ends = b.icmp_unsigned("==", remaining, self.number(0))
            b.store(b.select(ends, run, remaining), left)
            b.store(b.select(ends, b.add(totals, self.number(size)), totals), segment)
        for t in range(self.tokens):
            self._finish(t)

    def _finish(self, t: int) -> None:
        """The halving tree over a token's segments."""
        b, to = self.builder, self.output
        first, step = self.number(64 * t), 64 * self.tokens
        parts = b.add(to.partial, first)
        sums = [self.load(parts, step * s, FLOATS, 4) for s in range(SEGMENTS)]
        while len(sums) > 1:
            half = len(sums) // 2
            sums = [b.fadd(sums[i], sums[i + half]) for i in range(half)]
        out = b.add(to.out, b.mul(to.step, self.number(t)))
        b.store(sums[0], self.pointer(out, 0, FLOATS), 4)

    # -- what the code of the kinds is written with ---------------------------------------------

    def number(self, value: int) -> Any:
        return ir.Constant(I64, value)

    def pointer(self, base: Any, offset: int, kind: Any) -> Any:
        address = self.builder.add(base, self.number(offset))
        return self.builder.inttoptr(address, kind.as_pointer())

    def load(self, base: Any, offset: int, kind: Any, align: int = 1) -> Any:
        return self.builder.load(self.pointer(base, offset, kind), align=align)

    def advance(self, base: Any, index: Any, size: int) -> Any:
        """base + index * size"""
        return self.builder.add(base, self.builder.mul(index, self.number(size)))

    def prefetch(self, address: Any, size: int) -> None:
        """Start to bring ``size`` bytes into the second-level cache. No address is wrong."""
        for offset in range(0, size, 64):
            at = self.builder.add(address, self.number(offset))
            prefetch_line(self.builder, at, SECOND_LEVEL)

    def cells(self, values: list[Any]) -> list[Any]:
        """Variables that a loop changes; LLVM keeps them in registers."""
        found = [_alloca(self.builder, value.type) for value in values]
        for cell, value in zip(found, values, strict=True):
            self.builder.store(value, cell)
        return found

    def repeat(self, count: int, body: Callable[[Any], None], *, unroll: bool = False) -> None:
        """A loop over 0 .. count - 1 that LLVM can't unroll, or it would move loads upwards until
        no register is left. unroll: no loop, all indices are constants."""
        b = self.builder
        if unroll:
            for i in range(count):
                body(self.number(i))
            return
        index = self.cells([self.number(0)])[0]
        loop, after = b.append_basic_block("repeat"), b.append_basic_block("repeated")
        b.branch(loop)
        b.position_at_end(loop)
        i = b.load(index)
        body(i)
        following = self.opaque(b.add(i, self.number(1)))
        b.store(following, index)
        b.cbranch(b.icmp_unsigned("<", following, self.number(count)), loop, after)
        b.position_at_end(after)

    def opaque(self, value: Any) -> Any:
        """See vector_code.opaque."""
        return opaque(self.builder, value)
