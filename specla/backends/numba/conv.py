"""Causal depthwise convolution over a forest, with delayed windows.

The unit of work is a block of channels: no channel sees another, so a unit folds its part of the
window and then reads it, whatever other units do.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specla.backends.numba.elementary import silu
from specla.backends.numba.jit import device, kernel, routine
from specla.backends.numba.primitives import contiguous

BLOCK = 256
"""Channels of a unit."""

_INDEX = "int32[::1]"


@device
def _part(row: Any, start: int, stop: int) -> Any:
    """Channels of a row whose entries are contiguous."""
    return contiguous(row)[start:stop]


@routine
def _copy(target: Any, source: Any) -> None:
    for c in range(target.shape[0]):
        target[c] = source[c]


@routine
def _fold(window: Any, inputs: Any, count: int, start: int, stop: int) -> None:
    """Append ``count`` rows of inputs to window [width - 1, channels]; the oldest fall out."""
    past = window.shape[0]
    for i in range(past):
        target = _part(window[i], start, stop)
        if i + count < past:
            _copy(target, _part(window[i + count], start, stop))
        else:
            _copy(target, _part(inputs[i + count - past], start, stop))


@routine
def _first_tap(total: Any, x: Any, tap: Any) -> None:
    for c in range(x.shape[0]):
        total[c] = x[c] * tap[c]


@routine
def _add_tap(total: Any, x: Any, tap: Any) -> None:
    for c in range(x.shape[0]):
        total[c] = total[c] + x[c] * tap[c]


@routine
def _silu(total: Any, y: Any) -> None:
    for c in range(y.shape[0]):
        y[c] = silu(total[c])


@device
def _input(x: Any, window: Any, at: int, older: int, start: int, stop: int) -> Any:
    """Inputs of row ``at``, or ``older`` steps before the root where that is -1."""
    if at >= 0:
        return _part(x[at], start, stop)
    return _part(window[window.shape[0] - older], start, stop)


@routine
def _convolve(
    x: Any,
    row: int,
    weight: Any,
    window: Any,
    parent: Any,
    out: Any,
    total: Any,
    start: int,
    stop: int,
) -> None:
    """One row: taps from the youngest to the oldest, ancestors first, then the window."""
    width = weight.shape[0]
    _first_tap(total, _part(x[row], start, stop), weight[width - 1, start:stop])
    at, older = parent[row], 1
    for age in range(1, width):
        past, tap = _input(x, window, at, older, start, stop), weight[width - 1 - age, start:stop]
        _add_tap(total, past, tap)
        older += at < 0
        at = parent[at] if at >= 0 else -1
    _silu(total, _part(out[row], start, stop))


@kernel(
    "void(float32[:, :, :, ::1], float32[:, :, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 2)
    + ", int32[:, ::1], intp, intp)"
)
def fold_window(
    window: Any,
    inputs: Any,
    layer: int,
    slot: Any,
    pending_bank: Any,
    pending: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.fold_window; units as in conv_verify. pending: plan.pending_window."""
    start, stop = first_unit * BLOCK, min(last_unit * BLOCK, window.shape[3])
    for b in range(slot.shape[0]):
        count = pending[layer, b]
        if count:
            bank = inputs[slot[b], pending_bank[b], layer]
            _fold(window[slot[b], layer], bank, count, start, stop)


@kernel(
    "void(float32[:, :], float32[:, ::1], float32[:, :, :, ::1], float32[:, :, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 4)
    + ", int32[:, ::1], float32[:, :], intp, intp)"
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
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.conv_verify, for units first..last of ceil(channels / BLOCK)."""
    total = np.empty(BLOCK, np.float32)
    for unit in range(first_unit, last_unit):
        start, stop = unit * BLOCK, min((unit + 1) * BLOCK, x.shape[1])
        for b in range(slot.shape[0]):
            mine, banks = window[slot[b], layer], inputs[slot[b]]
            count = pending[layer, b]
            if count:
                _fold(mine, banks[pending_bank[b], layer], count, start, stop)
            bank = banks[1 - pending_bank[b], layer]
            for row in range(row_offset[b], row_offset[b + 1]):
                kept = bank[row - row_offset[b], start:stop]
                _copy(kept, _part(x[row], start, stop))
                _convolve(x, row, weight, mine, parent, out, total, start, stop)


@kernel(
    "void(float32[:, :], float32[:, ::1], float32[:, :, :, ::1], intp, "
    + ", ".join([_INDEX] * 3)
    + ", float32[:, :], intp, intp)"
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
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.conv_prefill; units as in conv_verify."""
    total = np.empty(BLOCK, np.float32)
    for unit in range(first_unit, last_unit):
        start, stop = unit * BLOCK, min((unit + 1) * BLOCK, x.shape[1])
        for b in range(slot.shape[0]):
            mine = window[slot[b], layer]
            first, last = row_offset[b], row_offset[b + 1]
            for row in range(first, last):
                _convolve(x, row, weight, mine, parent, out, total, start, stop)
            _fold(mine, x[first:last], last - first, start, stop)
