"""Causal depthwise convolution over a forest, with delayed windows."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from specla.backends.pools import RecurrentPool
from specla.backends.triton.elementary import silu
from specla.backends.triton.launch import launch
from specla.core.plan import StepPlan

BLOCK = 256
"""Channels of a program."""


@triton.jit(do_not_specialize=["layer"])
def _shift(
    window, new, counts, slots, banks, row_offset, layer, layers, nodes, channels,
    PAST: tl.constexpr, PENDING: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Take new inputs into a window; the oldest fall out. PENDING: from a bank, else from rows."""
    b, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = c < channels
    slot = tl.load(slots + b)
    if PENDING:
        count = tl.load(counts + b)
        first = ((slot * 2 + tl.load(banks + b)) * layers + layer) * nodes
    else:
        first = tl.load(row_offset + b)
        count = tl.load(row_offset + b + 1) - first
    if count == 0:
        return
    old = window + (slot * layers + layer).to(tl.int64) * PAST * channels + c
    for i in tl.static_range(PAST):
        # upwards: entry i + count is read before it is written
        at = i + count
        kept = at + 0 * c < PAST
        before = tl.load(old + at * channels, here & kept, 0.0)
        fresh = new + (first + at - PAST).to(tl.int64) * channels + c
        after = tl.load(fresh, here & (kept == 0), 0.0)
        tl.store(old + i * channels, tl.where(kept, before, after), here)


@triton.jit(do_not_specialize=["layer"])
def _convolve(
    x, weight, window, inputs, out, sequence, parent, slots, banks, row_offset, counts,
    layer, layers, nodes, channels,
    WIDTH: tl.constexpr, KEEP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """One row: back along its ancestors, then into the window. KEEP: its input goes to the bank."""
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    if row >= tl.load(counts):
        return
    here = c < channels
    b = tl.load(sequence + row)
    slot = tl.load(slots + b)
    now = tl.load(x + row.to(tl.int64) * channels + c, here, 0.0)
    if KEEP:
        current = (slot * 2 + 1 - tl.load(banks + b)) * layers + layer
        entry = current * nodes + row - tl.load(row_offset + b)
        tl.store(inputs + entry.to(tl.int64) * channels + c, now, here)
    past = window + (slot * layers + layer).to(tl.int64) * (WIDTH - 1) * channels + c
    total = now * tl.load(weight + (WIDTH - 1) * channels + c, here, 0.0)
    at, older = row, WIDTH - 1
    for age in tl.static_range(1, WIDTH):
        above = tl.load(parent + tl.maximum(at, 0))
        at = tl.where(at < 0, at, above)
        older = tl.where(at < 0, older - 1, older)
        # one choice for all channels; spread over them, since a mask wants a tensor
        inside = at + 0 * c >= 0
        near = tl.load(x + at.to(tl.int64) * channels + c, here & inside, 0.0)
        far = tl.load(past + older * channels, here & (inside == 0), 0.0)
        tap = tl.load(weight + (WIDTH - 1 - age) * channels + c, here, 0.0)
        total = total + tl.where(inside, near, far) * tap
    tl.store(out + row.to(tl.int64) * channels + c, silu(total), here)


@triton.jit
def _block_conv(
    x, dynamic, base, out, width, group, groups, side,
    TAPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    row, c = tl.program_id(0), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = c < width
    mine = dynamic + (row * 2 + side) * TAPS * groups + c // group
    total = tl.load(x + row * width + c, here, 0.0) * (
        tl.load(mine, here, 0.0) + tl.load(base + side * TAPS * width + c, here, 0.0)
    )
    for tap in tl.static_range(1, TAPS):
        # rows without a predecessor so far back add nothing at all
        if row >= tap:
            w = tl.load(mine + tap * groups, here, 0.0) + tl.load(
                base + (side * TAPS + tap) * width + c, here, 0.0
            )
            total = total + tl.load(x + (row - tap) * width + c, here, 0.0) * w
    tl.store(out + row * width + c, total, here)


class Convolution:
    """These kernels as methods of the protocol."""

    def conv_verify(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        self.fold_window(pool, layer, plan)
        _rows(x, weight, pool, layer, plan, out, keep=True)

    def conv_prefill(
        self, x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any
    ) -> None:
        _rows(x, weight, pool, layer, plan, out, keep=False)
        _move_on(pool, layer, plan, x, pending=False)

    def fold_window(self, pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
        _move_on(pool, layer, plan, pool.inputs, pending=True)

    def block_conv(self, x: Any, dynamic: Any, base: Any, side: int, out: Any) -> None:
        n, width = x.shape
        taps = base.shape[1]
        groups = dynamic.shape[1] // (2 * taps)
        arguments = (x, dynamic, base, out, width, width // groups, groups, side)
        grid = (n, triton.cdiv(width, BLOCK))
        launch(_block_conv, grid, *arguments, TAPS=taps, BLOCK=BLOCK)


def _move_on(pool: RecurrentPool, layer: int, plan: StepPlan, new: Any, *, pending: bool) -> None:
    s = pool.shape
    arguments = (
        *(pool.window, new, plan.pending_window[layer], plan.slot, plan.pending_bank),
        *(plan.row_offset, layer, s.layers, s.nodes, s.channels),
    )
    grid = (plan.n_sequences, triton.cdiv(s.channels, BLOCK) if s.conv_width > 1 else 0)
    launch(_shift, grid, *arguments, PAST=s.conv_width - 1, PENDING=pending, BLOCK=BLOCK)


def _rows(
    x: Any, weight: Any, pool: RecurrentPool, layer: int, plan: StepPlan, out: Any, *, keep: bool
) -> None:
    s = pool.shape
    arguments = (
        *(x, weight, pool.window, pool.inputs, out, plan.sequence, plan.parent, plan.slot),
        *(plan.pending_bank, plan.row_offset, plan.counts),
        *(layer, s.layers, s.nodes, s.channels),
    )
    grid = (plan.n_rows, triton.cdiv(s.channels, BLOCK))
    launch(_convolve, grid, *arguments, WIDTH=s.conv_width, KEEP=keep, BLOCK=BLOCK)
