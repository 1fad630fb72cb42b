"""Reading a drafter's tensors so that none is passed over."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from specla.backends.weights import WeightSource
from specla.errors import UnsupportedModelError
from specla.models.gguf import GgufFile
from specla.models.gguf.text import fail, quoted, shown_path
from specla.models.qwen35.weights import TensorReader, check_plain

Float32 = npt.NDArray[np.float32]


class DraftReader(TensorReader):
    """Remembers which tensors were asked for."""

    def __init__(self, gguf: GgufFile) -> None:
        super().__init__(gguf)
        self._known: set[str] = set()

    def name(self, *names: str) -> str:
        """The first of several names that the file has; the first of all if it has none."""
        return next((name for name in names if name in self.gguf.tensors), names[0])

    def matrix(self, name: str, rows: int, cols: int) -> WeightSource:
        self._known.add(name)
        return super().matrix(name, rows, cols)

    def vector(self, name: str, length: int) -> npt.NDArray[np.float32]:
        self._known.add(name)
        found: Float32 = super().vector(name, length)
        return found

    def optional(self, name: str, cols: int | None = None) -> WeightSource | None:
        """A matrix of any number of rows, and of columns unless told, if it is there."""
        if name not in self.gguf.tensors:
            return None
        found = self.gguf.tensor(name).to_weight()
        return self.matrix(name, found.rows, found.cols if cols is None else cols)

    def cube(self, name: str, shape: tuple[int, int, int]) -> Float32:
        """A small array as finite float32 of a shape. Raises as :meth:`table`."""
        self._known.add(name)
        source = self._checked(name, shape)
        check_plain(source)
        return np.asarray(self._finite(source), np.float32).reshape(shape)

    def integers(self, name: str) -> npt.NDArray[np.int64] | None:
        """int64 [n], if it is there."""
        if name not in self.gguf.tensors:
            return None
        self._known.add(name)
        source = self.gguf.tensor(name)
        kinds = {"I64": "<i8", "I32": "<i4"}
        if source.kind not in kinds or len(source.matrix_shape) != 1:
            fail(source.path, f"tensor {name} must be a list of integers, not {source.kind}")
        return source.raw.view(kinds[source.kind]).astype(np.int64)

    def refuse_rest(self) -> None:
        """Raise UnsupportedModelError for the first tensor that nobody asked for."""
        for name in self.gguf.tensors:
            if name not in self._known:
                raise UnsupportedModelError(
                    f"{shown_path(self.gguf.path)}: tensor {quoted(name)} is part of no drafter "
                    f"that specla knows; its drafts would come out wrong"
                )
