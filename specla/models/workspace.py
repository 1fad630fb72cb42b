"""Scratch buffers of a forward step: allocated once, at full capacity, handed out by name."""

from __future__ import annotations

from typing import Any

from specla.backends.base import Backend, QuantisedRows, Weight


class Workspace:
    """Named buffers of ``capacity`` rows. Asking again returns a view of the same memory."""

    def __init__(self, backend: Backend, capacity: int, *, poison: bool = False) -> None:
        self.capacity = capacity
        self._backend = backend
        self._poison = poison
        self._buffers: dict[tuple[str, tuple[int, ...], str], Any] = {}

    def rows(
        self, name: str, n: int, *shape: int, dtype: str = "float32", capacity: int | None = None
    ) -> Any:
        """[n, *shape]; undefined content (NaN in test builds).

        capacity: rows to allocate where the usual number would waste memory (logits of a large
        vocabulary); exceeded, the buffer is made anew at full capacity.
        """
        key = (name, shape, dtype)
        wanted = self.capacity if capacity is None or n > capacity else capacity
        if key not in self._buffers or self._buffers[key].shape[0] < n:
            self._buffers[key] = self._backend.empty((wanted, *shape), dtype)
        view = self._backend.rows(self._buffers[key], n)
        if self._poison:
            self._backend.poison(view)
        return view

    def quantised(self, n: int, cols: int) -> QuantisedRows:
        """Room for n quantised rows of ``cols`` activations."""
        return self._backend.quantised_rows(n, cols, self.rows)

    def project(
        self,
        x: Any,
        weights: tuple[Weight, ...],
        names: tuple[str, ...],
        capacity: int | None = None,
    ) -> list[Any]:
        """x W^T for several matrices that share an input, which is quantised once at most.

        names: of the buffers [n, rows of the matrix] that the results are in.
        """
        quantised, n = None, x.shape[0]
        if any(weight.quantised for weight in weights):
            quantised = self.quantised(n, x.shape[-1])
            self._backend.quantise(x, quantised)
        results = []
        for weight, name in zip(weights, names, strict=True):
            out = self.rows(name, n, weight.source.rows, capacity=capacity)
            if quantised is not None and weight.quantised:
                self._backend.linear_quantised(quantised, weight, out)
            else:
                self._backend.linear_float(x, weight, out)
            results.append(out)
        return results
