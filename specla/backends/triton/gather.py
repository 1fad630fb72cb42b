"""What a commit copies within the banks: factors of accepted nodes, of all layers."""

from __future__ import annotations

import triton
import triton.language as tl

from specla.backends.pools import RecurrentPool
from specla.backends.triton.launch import launch
from specla.core.plan import CommitPlan

BLOCK = 512


@triton.jit
def _copy(bank, source, target, width, BLOCK: tl.constexpr):
    for start in range(0, width, BLOCK):
        i = start + tl.arange(0, BLOCK)
        value = tl.load(bank + source * width + i, i < width)
        tl.store(bank + target * width + i, value, i < width)


@triton.jit
def _gather(
    key, delta, decay, inputs, slots, source_bank, node_offset, nodes_of,
    layers, nodes, key_width, delta_width, decay_width, input_width, BLOCK: tl.constexpr,
):  # fmt: skip
    i, layer, b = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    start = tl.load(node_offset + b)
    if i >= tl.load(node_offset + b + 1) - start:
        return
    slot, bank = tl.load(slots + b).to(tl.int64), tl.load(source_bank + b)
    source = ((slot * 2 + bank) * layers + layer) * nodes + tl.load(nodes_of + start + i)
    target = ((slot * 2 + 1 - bank) * layers + layer) * nodes + i
    _copy(key, source, target, key_width, BLOCK)
    _copy(delta, source, target, delta_width, BLOCK)
    _copy(decay, source, target, decay_width, BLOCK)
    _copy(inputs, source, target, input_width, BLOCK)


class Gather:
    """This kernel as a method of the protocol."""

    def gather(self, pool: RecurrentPool, commit: CommitPlan) -> None:
        s = pool.shape
        widths = (s.key_heads * s.key_dim, s.value_heads * s.value_dim, s.value_heads, s.channels)
        arguments = (
            *(pool.key, pool.delta, pool.decay, pool.inputs),
            *(commit.slot, commit.source_bank, commit.node_offset, commit.nodes),
            *(s.layers, s.nodes, *widths),
        )
        # the longest path can't have more nodes than all together, nor than a bank
        longest = min(commit.n_rows, s.nodes)
        launch(_gather, (longest, s.layers, commit.n_sequences), *arguments, BLOCK=BLOCK)
