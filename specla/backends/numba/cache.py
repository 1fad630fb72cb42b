"""Writing keys and values to the paged cache, rounded to its type. A unit is a row."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.attention_blocks import PAGE
from specla.backends.numba.jit import Kernel, kernel
from specla.backends.numba.primitives import contiguous, narrow


def _kv_write_half(
    k: Any,
    v: Any,
    key: Any,
    value: Any,
    layer: int,
    page_table: Any,
    slot: Any,
    sequence: Any,
    kv_row: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.kv_write, float16 cache as uint16."""
    for row in range(first_unit, last_unit):
        at = kv_row[row]
        page, offset = page_table[slot[sequence[row]], at // PAGE], at % PAGE
        for h in range(k.shape[1]):
            x, to = contiguous(k[row, h]), key[layer, page, offset, h]
            for i in range(to.shape[0]):
                to[i] = narrow(x[i])
            x, to = contiguous(v[row, h]), value[layer, page, offset, h]
            for i in range(to.shape[0]):
                to[i] = narrow(x[i])


def _kv_write_float(
    k: Any,
    v: Any,
    key: Any,
    value: Any,
    layer: int,
    page_table: Any,
    slot: Any,
    sequence: Any,
    kv_row: Any,
    first_unit: int,
    last_unit: int,
) -> None:
    """See Backend.kv_write, float32 cache."""
    for row in range(first_unit, last_unit):
        at = kv_row[row]
        page, offset = page_table[slot[sequence[row]], at // PAGE], at % PAGE
        for h in range(k.shape[1]):
            x, to = contiguous(k[row, h]), key[layer, page, offset, h]
            for i in range(to.shape[0]):
                to[i] = x[i]
            x, to = contiguous(v[row, h]), value[layer, page, offset, h]
            for i in range(to.shape[0]):
                to[i] = x[i]


def _write_signature(entry: str) -> str:
    caches = ", ".join([f"{entry}[:, :, :, :, ::1]"] * 2)
    return (
        f"void(float32[:, :, :], float32[:, :, :], {caches}, intp, int32[:, ::1], "
        + ", ".join(["int32[::1]"] * 3)
        + ", intp, intp)"
    )


kv_write: dict[str, Kernel] = {
    "f16": kernel(_write_signature("uint16"))(_kv_write_half),
    "f32": kernel(_write_signature("float32"))(_kv_write_float),
}
