"""Small helpers for kernel tests; they are those of the conformance kit."""

from __future__ import annotations

import numpy as np

from specla.testing.arrays import equal, filled, normal, quantised_rows

__all__ = ["NAN_BITS", "equal", "filled", "normal", "quantised_rows"]

NAN_BITS = np.uint32(0x7FC00000)
