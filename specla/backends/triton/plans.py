"""A step's plan in one copy, laid out so that steps of nearly the same size look the same.

A captured graph reads its plan where it was when it was captured, and is launched for as many rows.
So all arrays of a plan lie in one buffer that stays where it is, one for each layout, and where
``padded`` the number of rows is rounded up to one of a few sizes. Rows that pad a step belong to
sequence 0, are at position 0 and have no parent; what they compute is never read, and kernels that
write anywhere but to their own rows leave them out (``counts``).
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from specla.backends.plans import PlanUpload
from specla.backends.triton.arrays import TorchArrays
from specla.core.plan import CommitPlan, Plan, StepPlan

SIZES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Numbers of rows that steps are padded to; multiples of 64 beyond."""
LEAST_KEYS = 1024

PADDED = {
    **{"tokens": 0, "sequence": 0, "parent": -1, "position": 0, "kv_row": 0, "path_start": 0},
    **{"chain_rows": 0, "chain_offset": 0, "chain_sequence": 0, "chain_source": -1},
    **{"wave_offset": 0, "boundary_of_row": -1, "nodes": 0, "move_from": 0, "move_to": 0},
}
"""Arrays that have more entries in a larger step, and what pads them."""
OFFSETS = ("chain_offset", "wave_offset")
"""Those of them that have one entry more."""
ALIGNED = 4
"""Words at a multiple of which arrays, and rows of arrays, begin: 16 bytes, a kernel's vector."""


def padded_rows(n: int) -> int:
    """The size in which a step of n rows is kept."""
    return next((size for size in SIZES if size >= n), -(-n // 64) * 64)


def padded_keys(n: int, context: int) -> int:
    """A power of two, or the whole context: attention is launched for so many positions."""
    return max(n, min(max(LEAST_KEYS, 1 << (n - 1).bit_length()), context))


def _aligned(words: int) -> int:
    return -(-words // ALIGNED) * ALIGNED


@dataclass(frozen=True)
class _Field:
    """One array of a layout: where it begins, and its room."""

    name: str
    start: int
    rows: int
    shape: tuple[int, ...]
    stride: int


class _Layout:
    """A kind of plan of one padded size: a buffer on the device and its image on the host.

    padded: the arrays in the buffer, by name, each with all of its room.
    """

    def __init__(
        self, plan: StepPlan | CommitPlan, rows: int, paths: int, backend: TorchArrays
    ) -> None:
        self._fields: list[_Field] = []
        at = 0
        # the longest last: a copy ends where it ends
        for name, host in _arrays(plan):
            size = _capacity(name, host, rows, paths)
            stride = _aligned(host.shape[-1]) if host.ndim > 1 else 1
            self._fields.append(_Field(name, at, size, host.shape[1:], stride))
            at += _aligned(size * stride)
        self._blank = np.zeros(at, dtype=np.int32)
        for field in self._fields:
            self._blank[field.start : field.start + field.rows] = PADDED.get(field.name, 0)
        self._image = self._blank.copy()
        self.buffer = backend.empty((at,), "int32")
        self.padded = {f.name: _part(self.buffer, f, f.rows) for f in self._fields}

    def fill(self, plan: StepPlan | CommitPlan) -> npt.NDArray[np.int32]:
        """The words to copy to the beginning of the buffer."""
        self._image[:] = self._blank
        end = 0
        for field in self._fields:
            host = getattr(plan, field.name)
            _part(self._image, field, len(host))[...] = host
            end = field.start + len(host) * field.stride
        return self._image[:end]

    def exact(self, plan: StepPlan | CommitPlan) -> dict[str, Any]:
        """The same, as long as the plan's arrays are."""
        return {f.name: _part(self.buffer, f, len(getattr(plan, f.name))) for f in self._fields}


def _part(words: Any, field: _Field, rows: int) -> Any:
    """A field of ``words`` (NumPy or torch), its first ``rows``."""
    part = words[field.start : field.start + rows * field.stride]
    if not field.shape:
        return part
    return part.reshape(rows, field.stride)[:, : field.shape[0]]


def _arrays(plan: StepPlan | CommitPlan) -> list[tuple[str, npt.NDArray[np.int32]]]:
    named = [(field.name, getattr(plan, field.name)) for field in fields(plan)]
    arrays = [(name, array) for name, array in named if isinstance(array, np.ndarray)]
    return sorted(arrays, key=lambda item: item[0] == "paths")


def _capacity(name: str, host: npt.NDArray[np.int32], rows: int, paths: int) -> int:
    if name == "paths":
        return paths
    if name in PADDED:
        return max(rows + (name in OFFSETS), len(host))
    return len(host)


def _path_room(rows: int, needed: int) -> int:
    """Room for paths: what any tree may need where that is little, else what most do."""
    every = ((rows + 1) // 2) ** 2
    usual = max(min(every, 16 * rows), rows)
    return usual if needed <= usual else 1 << (needed - 1).bit_length()


class PackedPlans(PlanUpload):
    """One copy for a plan.

    context: positions that a sequence may have.  padded: lay plans out in few sizes, for graphs.
    """

    def __init__(self, backend: TorchArrays, context: int, *, padded: bool) -> None:
        self._device = backend
        self._context, self._padded = context, padded
        self._layouts: dict[Hashable, _Layout] = {}

    def upload(self, plan: Plan) -> Plan:
        rows = padded_rows(plan.n_rows)
        layout = self._layout(plan, rows)
        self._device.upload(layout.fill(plan), into=layout.buffer)
        if not self._padded:
            return replace(plan, **layout.exact(plan))
        sizes: dict[str, int] = {"n_rows": rows}
        if isinstance(plan, StepPlan) and plan.n_keys:
            sizes["n_keys"] = padded_keys(plan.n_keys, self._context)
        return replace(plan, **layout.padded, **sizes)

    def _layout(self, plan: StepPlan | CommitPlan, rows: int) -> _Layout:
        paths = _path_room(rows, len(plan.paths)) if isinstance(plan, StepPlan) else 0
        shapes = tuple(
            _capacity(name, array, rows, paths) if array.ndim == 1 else array.shape
            for name, array in _arrays(plan)
        )
        key = (type(plan), shapes)
        if key not in self._layouts:
            self._layouts[key] = _Layout(plan, rows, paths, self._device)
        return self._layouts[key]
