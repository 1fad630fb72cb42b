"""The gated delta rule over a forest (SpecLA, sections 4.1, 4.3 and 5.2).

A program holds one tile of one head's state, [key_dim, a few columns], in registers while it walks
a chain of the schedule. Two launches serve any tree: the first folds what is pending, writes the
durable state once and walks every sequence's root chain; the second walks all other chains, each
from the durable state along its ancestors. So no boundary state is ever written: walking an
ancestor again is cheaper than a state's way through memory, and no chain waits for another.
"""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.pools import RecurrentPool, RecurrentShape
from specla.backends.triton.launch import launch
from specla.backends.triton.sums import halves_of_rows
from specla.core.plan import StepPlan

TILE = 16
"""Columns of a state that a program holds."""


@triton.jit
def _tree(x, ik, K: tl.constexpr, LOG: tl.constexpr, BV: tl.constexpr):
    """Sum over the key dimension; what pads it counts as +0.0 whatever it was multiplied by."""
    if K != 2**LOG:
        x = tl.where((ik < K)[:, None], x, 0.0)
    return halves_of_rows(x, LOG, BV)


@triton.jit
def _folded(
    s, key, delta, decay, entry, count, head, key_head, value_heads, key_heads, ik, iv,
    K: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """S = S * decay + k * d for ``count`` factors of a bank, from ``entry`` on."""
    for i in range(count):
        at = entry + i
        k = tl.load(key + (at * key_heads + key_head) * K + ik, ik < K, 0.0)
        d = tl.load(delta + (at * value_heads + head) * V + iv, iv < V, 0.0)
        g = tl.load(decay + at * value_heads + head)
        s = s * g + k[:, None] * d[None, :]
    return s


@triton.jit
def _moved_on(
    s, k, v, decay, beta, row, head, key_head, value_heads, key_heads, v_row, v_head, ik, iv,
    K: tl.constexpr, V: tl.constexpr, LOG: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    """S after a row, and the row's factors: k, d and the decay."""
    kt = tl.load(k + (row * key_heads + key_head) * K + ik, ik < K, 0.0)
    vt = tl.load(v + row * v_row + head * v_head + iv, iv < V, 0.0)
    g = tl.load(decay + row * value_heads + head)
    rate = tl.load(beta + row * value_heads + head)
    s = s * g
    d = rate * (vt - _tree(s * kt[:, None], ik, K, LOG, BV))
    return s + kt[:, None] * d[None, :], kt, d, g


@triton.jit(do_not_specialize=["layer"])
def _walk(
    q, k, v, decay, beta, state, key_bank, delta_bank, decay_bank, out,
    slots, committed, banks, row_offset, pending, chain_rows, chain_offset, chain_sequence,
    path_start, paths, position, counts,
    layer, layers, nodes, value_heads, key_heads, v_row, v_head,
    K: tl.constexpr, V: tl.constexpr, LOG: tl.constexpr, BV: tl.constexpr,
    ROOTS: tl.constexpr,
):  # fmt: skip
    head, chain = tl.program_id(0), tl.program_id(2)
    if not ROOTS:
        chain += tl.load(counts + 1)
        if chain >= tl.load(counts + 2):
            return
    b = tl.load(chain_sequence + chain)
    # 64 bits: banks of many slots and nodes hold more floats than an int32 counts
    slot = tl.load(slots + b).to(tl.int64)
    bank, first_row = tl.load(banks + b), tl.load(row_offset + b)
    ik, iv = tl.arange(0, 2**LOG), tl.program_id(1) * BV + tl.arange(0, BV)
    key_head = head % key_heads
    tile = ((slot * layers + layer) * value_heads + head) * K * V
    at = state + tile + ik[:, None] * V + iv[None, :]
    here = (ik < K)[:, None] & (iv < V)[None, :]
    s = tl.load(at, here, 0.0)
    # entries of a slot's banks in all layers: [slot, bank, layer, node]
    pending_entry = ((slot * 2 + bank) * layers + layer) * nodes
    current_entry = ((slot * 2 + 1 - bank) * layers + layer) * nodes
    if ROOTS:
        count = tl.load(pending + b)
        s = _folded(
            s, key_bank, delta_bank, decay_bank, pending_entry, count, head, key_head,
            value_heads, key_heads, ik, iv, K, V,
        )  # fmt: skip
        if count > 0:
            tl.store(at, s, here)
    start, stop = tl.load(chain_offset + chain), tl.load(chain_offset + chain + 1)
    top = tl.load(chain_rows + start)
    base = tl.load(committed + b)
    own = tl.load(position + top) - base
    path = paths + tl.load(path_start + top)
    for i in range(own + stop - start):
        row = first_row + tl.load(path + i) - base
        qt = tl.load(q + (row * key_heads + key_head) * K + ik, ik < K, 0.0)
        s, kt, d, g = _moved_on(
            s, k, v, decay, beta, row, head, key_head, value_heads, key_heads, v_row, v_head,
            ik, iv, K, V, LOG, BV,
        )  # fmt: skip
        if i >= own:
            o = _tree(s * qt[:, None], ik, K, LOG, BV)
            tl.store(out + (row * value_heads + head) * V + iv, o, iv < V)
            entry = current_entry + row - first_row
            tl.store(delta_bank + (entry * value_heads + head) * V + iv, d, iv < V)
            if tl.program_id(1) == 0:
                tl.store(decay_bank + entry * value_heads + head, g)
                if head < key_heads:
                    tl.store(key_bank + (entry * key_heads + key_head) * K + ik, kt, ik < K)


@triton.jit(do_not_specialize=["layer"])
def _absorb(
    q, k, v, decay, beta, state, out, slots, row_offset,
    layer, layers, value_heads, key_heads, v_row, v_head,
    K: tl.constexpr, V: tl.constexpr, LOG: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(2)
    ik, iv = tl.arange(0, 2**LOG), tl.program_id(1) * BV + tl.arange(0, BV)
    key_head = head % key_heads
    tile = ((tl.load(slots + b) * layers + layer).to(tl.int64) * value_heads + head) * K * V
    at = state + tile + ik[:, None] * V + iv[None, :]
    here = (ik < K)[:, None] & (iv < V)[None, :]
    s = tl.load(at, here, 0.0)
    for row in range(tl.load(row_offset + b), tl.load(row_offset + b + 1)):
        qt = tl.load(q + (row * key_heads + key_head) * K + ik, ik < K, 0.0)
        s, _, _, _ = _moved_on(
            s, k, v, decay, beta, row, head, key_head, value_heads, key_heads, v_row, v_head,
            ik, iv, K, V, LOG, BV,
        )  # fmt: skip
        o = _tree(s * qt[:, None], ik, K, LOG, BV)
        tl.store(out + (row * value_heads + head) * V + iv, o, iv < V)
    tl.store(at, s, here)


@triton.jit(do_not_specialize=["layer"])
def _fold(
    state, key_bank, delta_bank, decay_bank, slots, banks, pending,
    layer, layers, nodes, value_heads, key_heads,
    K: tl.constexpr, V: tl.constexpr, LOG: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    head, b = tl.program_id(0), tl.program_id(2)
    count = tl.load(pending + b)
    if count == 0:
        return
    slot, bank = tl.load(slots + b).to(tl.int64), tl.load(banks + b)
    ik, iv = tl.arange(0, 2**LOG), tl.program_id(1) * BV + tl.arange(0, BV)
    tile = ((slot * layers + layer) * value_heads + head) * K * V
    at = state + tile + ik[:, None] * V + iv[None, :]
    here = (ik < K)[:, None] & (iv < V)[None, :]
    entry = ((slot * 2 + bank) * layers + layer) * nodes
    s = _folded(
        tl.load(at, here, 0.0), key_bank, delta_bank, decay_bank, entry, count, head,
        head % key_heads, value_heads, key_heads, ik, iv, K, V,
    )  # fmt: skip
    tl.store(at, s, here)


class DeltaRule:
    """These kernels as methods of the protocol."""

    def boundaries(self, shape: RecurrentShape) -> int:
        return 0

    def gdn_verify(
        self,
        q: Any,
        k: Any,
        v: Any,
        decay: Any,
        beta: Any,
        pool: RecurrentPool,
        layer: int,
        plan: StepPlan,
        out: Any,
    ) -> None:
        s, tiles = pool.shape, _tiles(pool)
        arguments = (
            *(q, k, v, decay, beta, pool.state, pool.key, pool.delta, pool.decay, out),
            *(plan.slot, plan.committed, plan.pending_bank, plan.row_offset),
            *(plan.pending_state[layer], plan.chain_rows, plan.chain_offset, plan.chain_sequence),
            *(plan.path_start, plan.paths, plan.position, plan.counts),
            *(layer, s.layers, s.nodes, s.value_heads, s.key_heads),
            *(v.stride(0), v.stride(1)),
        )
        # the first chains are the roots' own, one for each sequence
        for chains, roots in ((plan.n_sequences, True), (plan.n_rows - plan.n_sequences, False)):
            grid = (s.value_heads, tiles, chains)
            launch(_walk, grid, *arguments, **_meta(pool), ROOTS=roots)

    def gdn_prefill(
        self,
        q: Any,
        k: Any,
        v: Any,
        decay: Any,
        beta: Any,
        pool: RecurrentPool,
        layer: int,
        plan: StepPlan,
        out: Any,
    ) -> None:
        s = pool.shape
        arguments = (
            *(q, k, v, decay, beta, pool.state, out, plan.slot, plan.row_offset),
            *(layer, s.layers, s.value_heads, s.key_heads),
            *(v.stride(0), v.stride(1)),
        )
        grid = (s.value_heads, _tiles(pool), plan.n_sequences)
        launch(_absorb, grid, *arguments, **_meta(pool))

    def fold_state(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        s = pool.shape
        arguments = (
            *(pool.state, pool.key, pool.delta, pool.decay),
            *(plan.slot, plan.pending_bank, plan.pending_state[layer]),
            *(layer, s.layers, s.nodes, s.value_heads, s.key_heads),
        )
        launch(_fold, (s.value_heads, _tiles(pool), plan.n_sequences), *arguments, **_meta(pool))


def _tiles(pool: RecurrentPool) -> int:
    return int(triton.cdiv(pool.shape.value_dim, _columns(pool)))


def _columns(pool: RecurrentPool) -> int:
    return min(TILE, int(triton.next_power_of_2(pool.shape.value_dim)))


def _meta(pool: RecurrentPool) -> dict[str, int]:
    s = pool.shape
    log = (s.key_dim - 1).bit_length()
    return {"K": s.key_dim, "V": s.value_dim, "LOG": log, "BV": _columns(pool)}
