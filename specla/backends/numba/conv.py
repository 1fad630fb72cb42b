"""Causal depthwise convolution over a forest, with delayed windows."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.elementary import silu
from specla.backends.numba.jit import kernel, routine
from specla.backends.numba.primitives import contiguous

_INDEX = "int32[::1]"


@routine
def _fold(window: Any, inputs: Any, count: int) -> None:
    """Append ``count`` rows of inputs to window [width - 1, channels]; the oldest fall out."""
    past = window.shape[0]
    for i in range(past):
        target = window[i]
        if i + count < past:
            source = window[i + count]
            for c in range(target.shape[0]):
                target[c] = source[c]
        else:
            row = contiguous(inputs[i + count - past])
            for c in range(target.shape[0]):
                target[c] = row[c]


@routine
def _convolve_row(x: Any, row: int, weight: Any, window: Any, parent: Any, out: Any) -> None:
    """One row: taps from the youngest to the oldest, ancestors first, then the window."""
    width = weight.shape[0]
    y, now, tap = contiguous(out[row]), contiguous(x[row]), weight[width - 1]
    for c in range(y.shape[0]):
        y[c] = now[c] * tap[c]
    at = parent[row]
    before = width - 2  # newest row of the window not yet used
    for age in range(1, width):
        tap = weight[width - 1 - age]
        if at >= 0:
            past = contiguous(x[at])
            at = parent[at]
        else:
            past = window[before]
            before -= 1
        for c in range(y.shape[0]):
            y[c] = y[c] + past[c] * tap[c]
    for c in range(y.shape[0]):
        y[c] = silu(y[c])


@kernel(
    "void(float32[:, :, :, ::1], float32[:, :, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 2)
    + ", int32[:, ::1])"
)
def fold_window(
    window: Any, inputs: Any, layer: int, slot: Any, pending_bank: Any, pending: Any
) -> None:
    """See Backend.fold_window. pending: plan.pending_window."""
    for b in range(slot.shape[0]):
        count = pending[layer, b]
        if count:
            bank = inputs[slot[b], pending_bank[b], layer]
            _fold(window[slot[b], layer], bank, count)


@kernel(
    "void(float32[:, :], float32[:, ::1], float32[:, :, :, ::1], float32[:, :, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 4)
    + ", int32[:, ::1], float32[:, :])"
)
def conv_verify(
    x: Any,
    weight: Any,
    window: Any,
    inputs: Any,
    layer: int,
    slot: Any,
    pending_bank: Any,
    row_offset: Any,
    parent: Any,
    pending: Any,
    out: Any,
) -> None:
    """See Backend.conv_verify."""
    for b in range(slot.shape[0]):
        at = slot[b]
        count = pending[layer, b]
        if count:
            _fold(window[at, layer], inputs[at, pending_bank[b], layer], count)
        bank = inputs[at, 1 - pending_bank[b], layer]
        for row in range(row_offset[b], row_offset[b + 1]):
            kept, raw = bank[row - row_offset[b]], contiguous(x[row])
            for c in range(kept.shape[0]):
                kept[c] = raw[c]
            _convolve_row(x, row, weight, window[at, layer], parent, out)


@kernel(
    "void(float32[:, :], float32[:, ::1], float32[:, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 3)
    + ", float32[:, :])"
)
def conv_prefill(
    x: Any,
    weight: Any,
    window: Any,
    layer: int,
    slot: Any,
    row_offset: Any,
    parent: Any,
    out: Any,
) -> None:
    """See Backend.conv_prefill."""
    for b in range(slot.shape[0]):
        mine = window[slot[b], layer]
        start, stop = row_offset[b], row_offset[b + 1]
        for row in range(start, stop):
            _convolve_row(x, row, weight, mine, parent, out)
        _fold(mine, x[start:stop], stop - start)
