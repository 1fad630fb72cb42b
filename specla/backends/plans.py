"""How the plan of a step comes to the device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from specla.core.plan import Plan, map_arrays

if TYPE_CHECKING:
    from specla.backends.base import Backend


class PlanUpload(ABC):
    """Brings the plans of a model's steps to the device."""

    @abstractmethod
    def upload(self, plan: Plan) -> Plan:
        """The same plan on the device, good until the next one of its kind.

        A backend may lay it out for more rows than it has: ``n_rows`` and the arrays of rows, of
        chains and of nodes are larger then, ``counts`` and the offsets tell what is real.
        """


class PlanBuffers(PlanUpload):
    """A buffer for each of a plan's arrays, kept from step to step: right for every backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._buffers: dict[tuple[tuple[str, str], tuple[int, ...]], Any] = {}

    def upload(self, plan: Plan) -> Plan:
        kind = type(plan).__name__
        return map_arrays(plan, lambda name, array: self._upload((kind, name), array))

    def _upload(self, name: tuple[str, str], host: npt.NDArray[np.int32]) -> Any:
        key = (name, host.shape[1:])
        buffer = self._buffers.get(key)
        if buffer is None or buffer.shape[0] < len(host):
            # powers of two: growing stops soon
            size = 1 << max(len(host) - 1, 0).bit_length()
            buffer = self._backend.empty((size, *host.shape[1:]), "int32")
            self._buffers[key] = buffer
        return self._backend.upload(host, into=buffer)
