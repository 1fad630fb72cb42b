"""Arrays of a backend: what it makes, moves and cuts, and the long-lived pools made of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends.pools import FeaturePool, KvPool, KvShape, RecurrentPool, RecurrentShape
from specla.core.paging import PAGE


class Arrays(ABC):
    """The part of the kernel protocol (base.py) that computes nothing.

    Pools serve any backend whose arrays live where ``empty`` puts them.
    """

    @abstractmethod
    def empty(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """A new array with undefined content. dtype: float32, float16, int32, int16
        or int8."""

    @abstractmethod
    def zeros(self, shape: tuple[int, ...], dtype: str = "float32") -> Any:
        """A new array of zeros."""

    @abstractmethod
    def upload(self, host: npt.NDArray[Any], into: Any = None) -> Any:
        """Bring a host array over; into the leading part of ``into`` if given (no allocation)."""

    @abstractmethod
    def download(self, array: Any) -> npt.NDArray[Any]:
        """A host copy."""

    def download_all(self, *arrays: Any) -> list[npt.NDArray[Any]]:
        """Host copies of several arrays, for which the host waits once."""
        return [self.download(array) for array in arrays]

    @abstractmethod
    def clear(self, array: Any, index: Any = ...) -> None:
        """Fill ``array[index]`` with zeros."""

    @abstractmethod
    def poison(self, array: Any, index: Any = ...) -> None:
        """Fill ``array[index]`` with NaN (the lowest value for integers): for test builds."""

    @abstractmethod
    def copy(self, target: Any, target_index: Any, source: Any, source_index: Any) -> None:
        """``target[target_index] = source[source_index]``; the ranges must not overlap."""

    def view(self, array: Any, index: Any) -> Any:
        """``array[index]`` for integers and slices: shares memory."""
        return array[index]

    def read_only(self, array: Any) -> Any:
        """float32 values for somebody who must not write to ``array``: a view that can't be written
        where it is NumPy's, else a copy."""
        if isinstance(array, np.ndarray):
            view = array.view()
            view.flags.writeable = False
            return view
        fresh = self.empty(tuple(array.shape))
        self.copy(fresh, ..., array, ...)
        return fresh

    def rows(self, array: Any, count: int) -> Any:
        """View of the first ``count`` rows."""
        return self.view(array, slice(count))

    def row(self, array: Any, index: int) -> Any:
        """View of one row, the leading axis kept: [1, ...]."""
        return self.view(array, slice(index, index + 1))

    def columns(self, array: Any, start: int, stop: int) -> Any:
        """View of columns ``start..stop`` of the last axis."""
        return self.view(array, (..., slice(start, stop)))

    def heads(self, array: Any, n_heads: int) -> Any:
        """View [N, n_heads * D] as [N, n_heads, D]."""
        return array.reshape(array.shape[0], n_heads, array.shape[-1] // n_heads)

    def recurrent_pool(self, shape: RecurrentShape) -> RecurrentPool:
        """Allocate durable state and banks; state and windows start at zero."""
        s, slots, layers = shape, shape.slots, shape.layers
        state = (s.value_heads, s.key_dim, s.value_dim)
        bank = (slots, 2, layers, s.nodes)
        return RecurrentPool(
            shape=shape,
            state=self.zeros((slots, layers, *state)),
            window=self.zeros((slots, layers, s.conv_width - 1, s.channels)),
            key=self.empty((*bank, s.key_heads, s.key_dim)),
            delta=self.empty((*bank, s.value_heads, s.value_dim)),
            decay=self.empty((*bank, s.value_heads)),
            inputs=self.empty((*bank, s.channels)),
            boundary=self.empty((self.boundaries(shape), *state)),
        )

    def boundaries(self, shape: RecurrentShape) -> int:
        """Boundary states that a pool has room for: 0 where ``gdn_verify`` keeps none."""
        return shape.boundaries

    def kv_pool(self, shape: KvShape) -> KvPool:
        """Allocate the paged cache."""
        dtype = "float16" if shape.dtype == "f16" else "float32"
        block = (shape.layers, shape.pages, PAGE, shape.heads, shape.head_dim)
        table = self.upload(np.full((shape.slots, shape.pages_per_slot), -1, dtype=np.int32))
        return KvPool(shape, self.empty(block, dtype), self.empty(block, dtype), table)

    def feature_pool(
        self, layers: tuple[int, ...], slots: int, context: int, d_model: int
    ) -> FeaturePool:
        """Allocate room for captured hidden states."""
        return FeaturePool(layers, self.empty((slots, context, len(layers), d_model)))
