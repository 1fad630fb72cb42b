"""A weight matrix as a file holds it: the value that model code hands to a backend."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class WeightSource:
    """One matrix of a product ``y = W x``, still in its file encoding.

    name: tensor name, for messages.  kind: GGML type name ("F32", "F16", "BF16", "Q8_0", ...).
    rows: output features.  cols: input features.
    data: uint8 [rows, row_bytes], C order, usually a view of a memory map; never written.
    """

    name: str
    kind: str
    rows: int
    cols: int
    data: np.ndarray
