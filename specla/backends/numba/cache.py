"""Writing keys and values to the paged cache, rounded to its type. A unit is a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from specla.backends.numba.attention_blocks import PAGE
from specla.backends.numba.jit import Kernel, device, kernel
from specla.backends.numba.primitives import contiguous, narrow


def _writer(convert: Callable[[Any], Any]) -> Callable[..., None]:
    """The function of a kernel. convert: from float32 to what the cache holds."""

    def kv_write(
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
        """See Backend.kv_write."""
        for row in range(first_unit, last_unit):
            at = kv_row[row]
            page, offset = page_table[slot[sequence[row]], at // PAGE], at % PAGE
            for h in range(k.shape[1]):
                x, to = contiguous(k[row, h]), key[layer, page, offset, h]
                for i in range(to.shape[0]):
                    to[i] = convert(x[i])
                x, to = contiguous(v[row, h]), value[layer, page, offset, h]
                for i in range(to.shape[0]):
                    to[i] = convert(x[i])

    return kv_write


@device
def _same(x: Any) -> Any:
    return x


def _write_signature(entry: str) -> str:
    caches = ", ".join([f"{entry}[:, :, :, :, ::1]"] * 2)
    return (
        f"void(float32[:, :, :], float32[:, :, :], {caches}, intp, int32[:, ::1], "
        + ", ".join(["int32[::1]"] * 3)
        + ", intp, intp)"
    )


kv_write: dict[str, Kernel] = {
    # as its bits: Numba knows no float16 on a CPU
    "f16": kernel(_write_signature("uint16"))(_writer(narrow)),
    "f32": kernel(_write_signature("float32"))(_writer(_same)),
}
