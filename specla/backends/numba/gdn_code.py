"""The inner loops of the recurrence over one tile, as LLVM vector code.

A token needs the state twice: decayed, for ``tree(S * k)``, and updated, for ``tree(S * q)``. What
one token leaves is what the next one decays, so one pass does the second half of a token and the
first half of the next: every entry is loaded and stored once per token.

A pass goes group by group: group i of 8 * groups rows is rows i, i + groups, ..., i + 7 * groups,
whose part of a halving tree is a tree of its own. The tile holds its groups one after the other,
so that all offsets into it are constants.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from specla.backends.numba.features import has
from specla.backends.numba.tile_code import ROW_BYTES
from specla.backends.numba.vector_code import opaque, splat

GROUP = 8
"""Rows of a group."""
GROUP_BYTES = GROUP * ROW_BYTES

UPDATE, KEEP, DECAY, READ = 1, 2, 4, 8
# the passes there are, by name, since Numba takes no expression for a literal
LOOK, ENTER = READ, DECAY | READ
MOVE, MOVE_KEPT, LEAVE, LEAVE_KEPT = UPDATE | ENTER, UPDATE | KEEP | ENTER, UPDATE, UPDATE | KEEP

_FLOAT, _I32, _I64 = ir.FloatType(), ir.IntType(32), ir.IntType(64)
_WIDTH = 16 if has("avx512f") else 8
_LANES = ir.VectorType(_FLOAT, _WIDTH)
_PIECES = range(0, ROW_BYTES, 4 * _WIDTH)
# untyped in Numba
_tuple: Any = types.UniTuple
_unpack: Any = cgutils.unpack_tuple


class _Writer:
    """Vector operations on addresses."""

    def __init__(self, builder: Any) -> None:
        self.builder = builder

    def at(self, address: Any, offset: int = 0) -> Any:
        moved = self.builder.add(address, ir.Constant(_I64, offset))
        return self.builder.inttoptr(moved, _LANES.as_pointer())

    def load(self, address: Any, offset: int) -> Any:
        return self.builder.load(self.at(address, offset), align=4)

    def store(self, value: Any, address: Any, offset: int) -> None:
        self.builder.store(value, self.at(address, offset), align=4)

    def splat(self, address: Any) -> Any:
        """The float at an address, in all lanes."""
        b = self.builder
        value = b.load(b.inttoptr(address, _FLOAT.as_pointer()), align=4)
        return splat(b, value, _WIDTH)

    def opaque(self, value: Any) -> Any:
        """See vector_code.opaque.

        LLVM would otherwise keep a pointer per row in a register, of which there are too few.
        """
        return opaque(self.builder, value)

    def multiples(self, step: Any) -> list[Any]:
        """0, step, ... 7 * step, from four registers: addresses take a factor 2 or 4."""
        b, by = self.builder, [ir.Constant(_I64, j) for j in range(GROUP)]
        one, three, five, seven = (self.opaque(b.mul(step, by[j])) for j in (1, 3, 5, 7))
        two, four, six = b.shl(one, by[1]), b.shl(one, by[2]), b.shl(three, by[1])
        return [by[0], one, two, three, four, five, six, seven]


class _Group(_Writer):
    """Writes a pass over one group, a register of columns at a time."""

    def __init__(self, builder: Any, parts: int, places: list[Any], weights: list[Any]) -> None:
        super().__init__(builder)
        self.parts = parts
        self.tile, self.outputs, self.products, self.source, self.kept, groups = places
        key, self.delta, query, next_key, self.next_decay = weights
        self.key, self.query, self.next_key = (self.opaque(w) for w in (key, query, next_key))
        self.steps = self.multiples(builder.shl(groups, ir.Constant(_I64, 2)))

    def write(self) -> None:
        for self.piece in _PIECES:
            if self.parts & DECAY:
                self.decay = self.splat(self.next_decay)
            if self.parts & UPDATE:
                self.change = self.load(self.delta, self.piece)
            output, product = self._tree(0, 1)
            if self.parts & UPDATE:
                self.store(output, self.outputs, self.piece)
            if self.parts & READ:
                self.store(product, self.products, self.piece)

    def _tree(self, first: int, stride: int) -> tuple[Any, Any]:
        """Sums of S * q and of the next token's S * k, depth first to save registers."""
        if stride == GROUP:
            return self._leaf(first)
        lower, upper = self._tree(first, 2 * stride), self._tree(first + stride, 2 * stride)
        output, product = (
            None if one is None else self.builder.fadd(one, other)
            for one, other in zip(lower, upper, strict=True)
        )
        return output, product

    def _leaf(self, j: int) -> tuple[Any, Any]:
        b, output, product, offset = self.builder, None, None, ROW_BYTES * j + self.piece
        x = self.load(self.source, offset)
        if self.parts & UPDATE:
            x = b.fadd(x, b.fmul(self._weight(self.key, j), self.change))
            output = b.fmul(x, self._weight(self.query, j))
        if self.parts & KEEP:
            self.store(x, self.kept, offset)
        if self.parts & DECAY:
            x = b.fmul(x, self.decay)
            self.store(x, self.tile, offset)
        if self.parts & READ:
            product = b.fmul(x, self._weight(self.next_key, j))
        return output, product

    def _weight(self, base: Any, j: int) -> Any:
        return self.splat(self.builder.add(base, self.steps[j]))


def _group(typing_context: Any, parts: Any, places: Any, weights: Any) -> Any:
    """One group of a pass.

    parts: a literal. places: (tile, outputs, products, source, kept, groups), all but the last
    addresses of this group's rows. weights: (key, delta, query, next key, next decay), addresses;
    keys and query at the group's first row. Zeros for what the parts don't use.

    The rows come from ``source``. UPDATE: key * delta is added, and ``outputs`` gets their tree
    with the query. KEEP: they are stored at ``kept``. DECAY: times the next decay they go to the
    tile. READ: ``products`` gets the tree of what came out with the next key.
    """
    signature = types.void(parts, _tuple(types.int64, 6), _tuple(types.int64, 5))
    what = parts.literal_value

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        places, weights = (_unpack(builder, one) for one in arguments[1:])
        _Group(builder, what, places, weights).write()
        return context.get_dummy_value()

    return signature, generate


def _enter_row(typing_context: Any, to: Any, at: Any, decay: Any, factors: Any) -> Any:
    """Row ``to`` = decay * row ``at``, after the factors were folded into that, in place.

    Addresses. factors: (count >= 0, key's entry of this row, step, delta, step, decay, step),
    steps in bytes from factor to factor. to: 0 for the fold alone.
    """
    signature = types.void(*[types.int64] * 3, _tuple(types.int64, 7))

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        b, code = builder, _Writer(builder)
        to, at, decay = arguments[:3]
        count, *rest = _unpack(b, arguments[3])
        rows = [code.load(at, piece) for piece in _PIECES]
        zero, one = ir.Constant(_I64, 0), ir.Constant(_I64, 1)
        before = b.block
        loop, folded, after = (b.append_basic_block() for _ in range(3))
        b.cbranch(b.icmp_signed(">", count, zero), loop, after)
        b.position_at_end(loop)
        left, places, held = (
            b.phi(_I64),
            [b.phi(_I64) for _ in range(3)],
            [b.phi(_LANES) for _ in rows],
        )
        key, gate = code.splat(places[0]), code.splat(places[2])
        done = [
            b.fadd(b.fmul(x, gate), b.fmul(key, code.load(places[1], piece)))
            for x, piece in zip(held, _PIECES, strict=True)
        ]
        fewer = b.sub(left, one)
        moved = [b.add(place, step) for place, step in zip(places, rest[1::2], strict=True)]
        for phi, start, again in zip(
            [left, *places, *held], [count, *rest[::2], *rows], [fewer, *moved, *done], strict=True
        ):
            phi.add_incoming(start, before)
            phi.add_incoming(again, loop)
        b.cbranch(b.icmp_signed(">", fewer, zero), loop, folded)
        b.position_at_end(folded)
        for x, piece in zip(done, _PIECES, strict=True):
            code.store(x, at, piece)
        b.branch(after)
        b.position_at_end(after)
        last = [b.phi(_LANES) for _ in rows]
        for phi, x, y in zip(last, rows, done, strict=True):
            phi.add_incoming(x, before)
            phi.add_incoming(y, folded)
        with b.if_then(b.icmp_signed("!=", to, zero)):
            gate = code.splat(decay)
            for x, piece in zip(last, _PIECES, strict=True):
                code.store(b.fmul(x, gate), to, piece)
        return context.get_dummy_value()

    return signature, generate


def _delta_row(typing_context: Any, to: Any, beta: Any, v: Any, total: Any) -> Any:
    """Row ``to`` = beta * (row v - row total); addresses, beta too."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        code = _Writer(builder)
        to, beta, v, total = arguments
        rate = code.splat(beta)
        for piece in _PIECES:
            rest = builder.fsub(code.load(v, piece), code.load(total, piece))
            code.store(builder.fmul(rate, rest), to, piece)
        return context.get_dummy_value()

    return types.void(*[types.int64] * 4), generate


group: Any = intrinsic(prefer_literal=True)(_group)
enter_row: Any = intrinsic(_enter_row)
delta_row: Any = intrinsic(_delta_row)
