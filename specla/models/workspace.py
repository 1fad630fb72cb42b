"""Scratch buffers of a forward step: allocated once, at full capacity, handed out by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from specla.backends.base import Backend, Weight
from specla.backends.compositions import Operand


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

    def operand(self, name: str, n: int, cols: int, weights: Sequence[Weight]) -> Operand:
        """Room for n rows of ``cols`` activations that these matrices are going to take."""
        return self._operand(name, self.rows(name, n, cols), weights, exact=False)

    def quantised(self, x: Any, weights: Sequence[Weight]) -> Operand:
        """Floats x [n, cols] as these matrices take them, quantised once at most."""
        operand = self._operand("projected", x, weights, exact=True)
        if operand.quantised is not None:
            self._backend.quantise(x, operand.quantised)
        return operand

    def _operand(
        self, name: str, floats: Any, weights: Sequence[Weight], *, exact: bool
    ) -> Operand:
        def room(part: str, n: int, *shape: int, dtype: str = "float32") -> Any:
            return self.rows(f"{name}, {part}", n, *shape, dtype=dtype)

        wanted = [weight.quantised for weight in weights]
        n, cols = floats.shape
        quantised = self._backend.quantised_rows(n, cols, room) if any(wanted) else None
        return Operand(floats, quantised, exact or not all(wanted))

    def products(
        self,
        x: Operand,
        weights: tuple[Weight, ...],
        names: tuple[str, ...],
        capacity: int | None = None,
    ) -> tuple[Any, ...]:
        """x W^T for several matrices.

        names: of the buffers [n, rows of the matrix] that the results are in.
        """
        outs = tuple(
            self.rows(name, x.floats.shape[0], weight.source.rows, capacity=capacity)
            for weight, name in zip(weights, names, strict=True)
        )
        self._backend.linear_group(x, weights, outs)
        return outs

    def project(
        self,
        x: Any,
        weights: tuple[Weight, ...],
        names: tuple[str, ...],
        capacity: int | None = None,
    ) -> tuple[Any, ...]:
        """The same for floats x [n, cols]."""
        return self.products(self.quantised(x, weights), weights, names, capacity)
