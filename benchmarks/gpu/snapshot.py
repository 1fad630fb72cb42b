"""The usual way to verify a tree, as a baseline: every node keeps a whole state of its own.

A node reads its parent's [K, V] state from memory, makes one step and writes its own; nodes of one
depth run at once. Arithmetic and tiles are those of specla's kernel, and so are the bytes of the
outputs. Nothing is pending in such a design: the accepted node's state simply becomes the next
root's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from gpu.verify_inputs import VerifyInputs
from specla.backends.triton.launch import launch
from specla.backends.triton.sums import halves_of_rows

TILE = 16


@triton.jit(do_not_specialize=["first", "layer"])
def _node(
    q, k, v, decay, beta, state, snapshots, out, order, parent, sequence, slots,
    first, layer, layers, value_heads, key_heads, K, V,
    LOG: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    head, row = tl.program_id(0), tl.load(order + first + tl.program_id(2))
    ik, iv = tl.arange(0, 2**LOG), tl.program_id(1) * BV + tl.arange(0, BV)
    here = (ik < K)[:, None] & (iv < V)[None, :]
    inside = ik[:, None] * V + iv[None, :]
    above = tl.load(parent + row)
    slot = tl.load(slots + tl.load(sequence + row))
    durable = ((slot * layers + layer).to(tl.int64) * value_heads + head) * K * V
    if above < 0:
        s = tl.load(state + durable + inside, here, 0.0)
    else:
        kept = (above.to(tl.int64) * value_heads + head) * K * V
        s = tl.load(snapshots + kept + inside, here, 0.0)
    at_key = (row * key_heads + head % key_heads) * K + ik
    kt, qt = tl.load(k + at_key, ik < K, 0.0), tl.load(q + at_key, ik < K, 0.0)
    at_value = (row * value_heads + head) * V + iv
    vt = tl.load(v + at_value, iv < V, 0.0)
    s = s * tl.load(decay + row * value_heads + head)
    d = tl.load(beta + row * value_heads + head) * (vt - halves_of_rows(s * kt[:, None], LOG, BV))
    s = s + kt[:, None] * d[None, :]
    tl.store(out + at_value, halves_of_rows(s * qt[:, None], LOG, BV), iv < V)
    own = (row.to(tl.int64) * value_heads + head) * K * V
    tl.store(snapshots + own + inside, s, here)


@dataclass(frozen=True)
class SnapshotVerify:
    """snapshots: [copies, N, value_heads, K, V]; layer ``i`` uses copy ``i % copies``.

    order: rows by depth.  waves: (first, count) in ``order`` of each depth.
    """

    inputs: VerifyInputs
    snapshots: Any
    order: Any
    waves: tuple[tuple[int, int], ...]
    out: Any

    @classmethod
    def of(cls, inputs: VerifyInputs, cold: int) -> SnapshotVerify:
        """For the same inputs. cold: bytes that the copies together take at least, if as many
        layers do.  Raises ValueError for a key size that is no power of two."""
        s, n = inputs.pool.shape, inputs.plan.n_rows
        if s.key_dim & (s.key_dim - 1):
            raise ValueError(
                f"the baseline needs a key size that is a power of two, not {s.key_dim}"
            )
        size = 4 * n * s.value_heads * s.key_dim * s.value_dim
        copies = min(s.layers, max(1, -(-cold // size)))
        depths = [depth for tree in inputs.forest.trees for depth in tree.depths]
        order = sorted(range(n), key=depths.__getitem__)
        counts = [depths.count(depth) for depth in range(max(depths) + 1)]
        waves = tuple((sum(counts[:depth]), count) for depth, count in enumerate(counts))
        snapshots = inputs.backend.empty((copies, n, s.value_heads, s.key_dim, s.value_dim))
        device = inputs.out.device
        order_there = torch.tensor(order, dtype=torch.int32, device=device)
        return cls(inputs, snapshots, order_there, waves, torch.empty_like(inputs.out))

    def verify(self, layer: int) -> None:
        """All waves of a layer, from the durable state as it is."""
        s, plan = self.inputs.pool.shape, self.inputs.settled
        q, k, v, decay, beta = self.inputs.vectors
        snapshots = self.snapshots[layer % len(self.snapshots)]
        columns = min(TILE, int(triton.next_power_of_2(s.value_dim)))
        for first, count in self.waves:
            grid = (s.value_heads, triton.cdiv(s.value_dim, columns), count)
            arguments = (
                *(q, k, v, decay, beta, self.inputs.pool.state, snapshots, self.out),
                *(self.order, plan.parent, plan.sequence, plan.slot),
                *(first, layer, s.layers, s.value_heads, s.key_heads, s.key_dim, s.value_dim),
            )
            launch(_node, grid, *arguments, LOG=s.key_dim.bit_length() - 1, BV=columns)

    def verify_all(self) -> None:
        """All layers, one after the other."""
        for layer in range(self.inputs.layers):
            self.verify(layer)
