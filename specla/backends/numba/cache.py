"""Writing keys and values to the paged cache, rounded to its type."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.attention_blocks import PAGE
from specla.backends.numba.jit import Kernel, kernel
from specla.backends.numba.primitives import narrow


def _kv_write_half(
    k: Any,
    v: Any,
    key: Any,
    value: Any,
    layer: int,
    page_table: Any,
    slot: Any,
    row_offset: Any,
    kv_row: Any,
) -> None:
    """See Backend.kv_write, float16 cache as uint16."""
    for b in range(slot.shape[0]):
        for row in range(row_offset[b], row_offset[b + 1]):
            page, offset = page_table[slot[b], kv_row[row] // PAGE], kv_row[row] % PAGE
            for h in range(k.shape[1]):
                for i in range(k.shape[2]):
                    key[layer, page, offset, h, i] = narrow(k[row, h, i])
                    value[layer, page, offset, h, i] = narrow(v[row, h, i])


def _kv_write_float(
    k: Any,
    v: Any,
    key: Any,
    value: Any,
    layer: int,
    page_table: Any,
    slot: Any,
    row_offset: Any,
    kv_row: Any,
) -> None:
    """See Backend.kv_write, float32 cache."""
    for b in range(slot.shape[0]):
        for row in range(row_offset[b], row_offset[b + 1]):
            page, offset = page_table[slot[b], kv_row[row] // PAGE], kv_row[row] % PAGE
            for h in range(k.shape[1]):
                for i in range(k.shape[2]):
                    key[layer, page, offset, h, i] = k[row, h, i]
                    value[layer, page, offset, h, i] = v[row, h, i]


def _write_signature(entry: str) -> str:
    caches = ", ".join([f"{entry}[:, :, :, :, ::1]"] * 2)
    return (
        f"void(float32[:, :, :], float32[:, :, :], {caches}, intp, int32[:, ::1], "
        + ", ".join(["int32[::1]"] * 3)
        + ")"
    )


kv_write: dict[str, Kernel] = {
    "f16": kernel(_write_signature("uint16"))(_kv_write_half),
    "f32": kernel(_write_signature("float32"))(_kv_write_float),
}
