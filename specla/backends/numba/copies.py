"""Kernels that only copy: captured features, and what a commit moves."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.attention_blocks import PAGE
from specla.backends.numba.jit import Kernel, device, kernel
from specla.backends.numba.primitives import contiguous

_INDEX = "int32[::1]"
_FACTORS = "float32[:, :, :, :, :, ::1]"


@device
def _copy(to: Any, at: Any) -> None:
    for i in range(to.shape[0]):
        to[i] = at[i]


@kernel(f"void(float32[:, :], float32[:, :, :, ::1], intp, {', '.join([_INDEX] * 3)}, intp, intp)")
def feature_write(
    x: Any,
    rows: Any,
    index: int,
    sequence: Any,
    slot: Any,
    kv_row: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.feature_write. A unit is a row."""
    for n in range(first_unit, last_unit):
        _copy(rows[slot[sequence[n]], kv_row[n], index], contiguous(x[n]))


@kernel(f"void(float32[:, :, :, ::1], {', '.join([_INDEX] * 4)}, intp, intp)")
def feature_move(
    rows: Any,
    slot: Any,
    move_offset: Any,
    move_from: Any,
    move_to: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.feature_move. A unit is a sequence.

    Sources and targets ascend and a target lies before its source: none is overwritten unread.
    """
    for b in range(first_unit, last_unit):
        for i in range(move_offset[b], move_offset[b + 1]):
            to, at = rows[slot[b], move_to[i]], rows[slot[b], move_from[i]]
            for layer in range(to.shape[0]):
                _copy(to[layer], at[layer])


def _kv_move(
    key: Any,
    value: Any,
    page_table: Any,
    slot: Any,
    move_offset: Any,
    move_from: Any,
    move_to: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.kv_move. A unit is a layer; in which order to move: see feature_move."""
    for layer in range(first_unit, last_unit):
        for b in range(slot.shape[0]):
            table = page_table[slot[b]]
            for i in range(move_offset[b], move_offset[b + 1]):
                at, to = move_from[i], move_to[i]
                from_page, to_page = table[at // PAGE], table[to // PAGE]
                for h in range(key.shape[3]):
                    _copy(key[layer, to_page, to % PAGE, h], key[layer, from_page, at % PAGE, h])
                    _copy(
                        value[layer, to_page, to % PAGE, h], value[layer, from_page, at % PAGE, h]
                    )


def _move_signature(entry: str) -> str:
    caches = ", ".join([f"{entry}[:, :, :, :, ::1]"] * 2)
    return f"void({caches}, int32[:, ::1], {', '.join([_INDEX] * 4)}, intp, intp)"


kv_move: dict[str, Kernel] = {
    "f16": kernel(_move_signature("uint16"))(_kv_move),
    "f32": kernel(_move_signature("float32"))(_kv_move),
}


@kernel(
    f"void({_FACTORS}, {_FACTORS}, float32[:, :, :, :, ::1], float32[:, :, :, :, ::1], "
    f"{', '.join([_INDEX] * 4)}, intp, intp)"
)
def gather(
    key: Any,
    delta: Any,
    decay: Any,
    inputs: Any,
    slot: Any,
    source_bank: Any,
    node_offset: Any,
    nodes: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.gather. A unit is a layer."""
    for layer in range(first_unit, last_unit):
        for b in range(slot.shape[0]):
            s, source = slot[b], source_bank[b]
            first = node_offset[b]
            for i in range(node_offset[b + 1] - first):
                node = nodes[first + i]
                for h in range(key.shape[4]):
                    _copy(key[s, 1 - source, layer, i, h], key[s, source, layer, node, h])
                for h in range(delta.shape[4]):
                    _copy(delta[s, 1 - source, layer, i, h], delta[s, source, layer, node, h])
                _copy(decay[s, 1 - source, layer, i], decay[s, source, layer, node])
                _copy(inputs[s, 1 - source, layer, i], inputs[s, source, layer, node])
