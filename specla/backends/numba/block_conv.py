"""The convolution of a DFlash2 block: a few taps whose coefficients differ from row to row."""

from __future__ import annotations

from typing import Any

from specla.backends.numba.jit import kernel
from specla.backends.numba.primitives import contiguous


@kernel("void(float32[:, :], float32[:, :], float32[:, :, ::1], intp, float32[:, :], intp, intp)")
def block_conv(
    x: Any, dynamic: Any, base: Any, side: int, out: Any, first_unit: int, last_unit: int
) -> None:
    """See Backend.block_conv. A unit is a row."""
    taps, width = base.shape[1:]
    groups = dynamic.shape[1] // (2 * taps)
    size = width // groups
    for n in range(first_unit, last_unit):
        to, coefficients = contiguous(out[n]), contiguous(dynamic[n])
        for tap in range(min(taps, n + 1)):
            row, fixed = contiguous(x[n - tap]), base[side, tap]
            at = (side * taps + tap) * groups
            for group in range(groups):
                own = coefficients[at + group]
                for c in range(group * size, (group + 1) * size):
                    term = row[c] * (own + fixed[c])
                    to[c] = term if tap == 0 else to[c] + term
