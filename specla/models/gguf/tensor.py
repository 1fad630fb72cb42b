"""One tensor of a GGUF file, memory-mapped and still in its file encoding."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from specla.backends.weights import WeightSource
from specla.errors import UnsupportedModelError
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.gguf.types import tensor_type


@dataclass(frozen=True)
class TensorSource:
    """A tensor as the file holds it.

    name: tensor name.  kind: GGML type name ("F32", "Q4_K", ...).
    shape: row-major, so [rows, cols] for a matrix (the file's own order reversed).
    raw: uint8 [n_bytes], read-only view of the memory map.  path: the file, for messages.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    raw: np.ndarray
    path: Path

    @property
    def n_elements(self) -> int:
        product = 1
        for dim in self.shape:
            product *= dim
        return product

    @property
    def n_bytes(self) -> int:
        return int(self.raw.size)

    @property
    def cols(self) -> int:
        """Length of a row, the fastest dimension."""
        return self.shape[-1]

    @property
    def block(self) -> int:
        """Elements of a block, the smallest part that can be converted; 1 for plain numbers."""
        return tensor_type(self.kind).block

    @property
    def matrix_shape(self) -> tuple[int, ...]:
        """The shape without leading dimensions of one, which writers drop or keep at will."""
        shape = self.shape
        while len(shape) > 1 and shape[0] == 1:
            shape = shape[1:]
        return shape

    def by_rows(self) -> np.ndarray:
        """uint8 [n_elements / cols, row_bytes]: the raw bytes, a row of the file per row."""
        return self.raw.reshape(self.n_elements // self.cols, -1)

    def to_float32(self) -> np.ndarray:
        """Exact values as float32 [*shape]; a read-only view of the file for F32.

        Raises UnsupportedModelError for types that can't be converted exactly.
        """
        from specla.backends.blocks import dequantise

        try:
            return dequantise(self.kind, self.by_rows(), self.cols).reshape(self.shape)
        except UnsupportedModelError as error:
            where = f"{shown_path(self.path)}: tensor {quoted(self.name)}"
            raise UnsupportedModelError(f"{where}: {error}") from None

    def to_weight(self) -> WeightSource:
        """The matrix of a product, still encoded. A vector counts as a matrix of one row.

        Raises FileFormatError for tensors of more than two dimensions.
        """
        shape = self.matrix_shape
        if len(shape) > 2:
            fail(self.path, f"tensor {quoted(self.name)} has the shape {shape}, not a matrix")
        rows = shape[0] if len(shape) == 2 else 1
        return WeightSource(self.name, self.kind, rows, self.cols, self.by_rows())
