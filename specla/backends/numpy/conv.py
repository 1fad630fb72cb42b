"""Causal depthwise convolution over a forest, with delayed windows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.backends.pools import RecurrentPool
from specla.core.elementary import silu
from specla.core.plan import StepPlan

Float32 = npt.NDArray[np.float32]


def fold_window(pool: RecurrentPool, layer: int, plan: StepPlan) -> None:
    """See Backend.fold_window: the window takes in the pending inputs, oldest fall out."""
    for b in range(plan.n_sequences):
        count = int(plan.pending_window[layer, b])
        if count:
            slot, bank = plan.slot[b], plan.pending_bank[b]
            _shift_in(pool.window[slot, layer], pool.inputs[slot, bank, layer, :count])


def _shift_in(window: Float32, inputs: Float32) -> None:
    """Append inputs [n, channels] to window [width - 1, channels] and keep its length."""
    window[...] = np.concatenate([window, inputs])[len(inputs) :]


def conv_verify(
    x: Float32, weight: Float32, pool: RecurrentPool, layer: int, plan: StepPlan, out: Float32
) -> None:
    """See Backend.conv_verify."""
    fold_window(pool, layer, plan)
    for b in range(plan.n_sequences):
        start, stop = plan.row_offset[b], plan.row_offset[b + 1]
        current = 1 - plan.pending_bank[b]
        pool.inputs[plan.slot[b], current, layer, : stop - start] = x[start:stop]
    _convolve(x, weight, pool, layer, plan, out)


def conv_prefill(
    x: Float32, weight: Float32, pool: RecurrentPool, layer: int, plan: StepPlan, out: Float32
) -> None:
    """See Backend.conv_prefill."""
    _convolve(x, weight, pool, layer, plan, out)
    for b in range(plan.n_sequences):
        start, stop = plan.row_offset[b], plan.row_offset[b + 1]
        _shift_in(pool.window[plan.slot[b], layer], x[start:stop])


@np.errstate(all="ignore")
def _convolve(
    x: Float32, weight: Float32, pool: RecurrentPool, layer: int, plan: StepPlan, out: Float32
) -> None:
    """Each row looks back along its own ancestors, then into its sequence's window."""
    width = weight.shape[0]
    past = width - 1
    windows = pool.window[plan.slot, layer].reshape(-1, x.shape[1])
    inputs = np.concatenate([windows, x])
    before = _predecessors(past, plan)
    at = plan.n_sequences * past + np.arange(plan.n_rows)
    total = x * weight[width - 1]
    for age in range(1, width):
        at = before[at]
        total = total + inputs[at] * weight[width - 1 - age]
    out[...] = silu(total)


def _predecessors(past: int, plan: StepPlan) -> npt.NDArray[np.int64]:
    """For each entry of [all windows | all rows], the entry that comes before it in time."""
    n_window = plan.n_sequences * past
    newest = (np.arange(plan.n_sequences) + 1) * past - 1
    of_row = np.where(plan.parent < 0, newest[plan.sequence], n_window + plan.parent)
    return np.concatenate([np.arange(n_window) - 1, of_row])


@np.errstate(all="ignore")
def block_conv(x: Float32, dynamic: Float32, base: Float32, side: int, out: Float32) -> None:
    """See Backend.block_conv."""
    n, width = x.shape
    taps = base.shape[1]
    by_group = dynamic.reshape(n, 2, taps, -1)[:, side]
    groups = by_group.shape[-1]
    weight = np.repeat(by_group, width // groups, axis=2) + base[side]
    total = x * weight[:, 0]
    for tap in range(1, taps):
        # rows without a predecessor so far back add nothing at all
        total[tap:] = total[tap:] + x[: max(n - tap, 0)] * weight[tap:, tap]
    out[...] = total
