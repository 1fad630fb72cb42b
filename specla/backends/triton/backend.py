"""The GPU backend as a class."""

from __future__ import annotations

import os

import torch

from specla.backends.base import Backend, check_positions
from specla.backends.plans import PlanUpload
from specla.backends.pools import KvPool, KvShape
from specla.backends.steps import StepRunner
from specla.backends.triton.arrays import TorchArrays
from specla.backends.triton.attention import MOST_POSITIONS, Attention
from specla.backends.triton.choices import Choices
from specla.backends.triton.conv import Convolution
from specla.backends.triton.device import Device, choose
from specla.backends.triton.elementwise import Elementwise
from specla.backends.triton.gather import Gather
from specla.backends.triton.gdn import DeltaRule
from specla.backends.triton.graphs import Capture, GraphSteps, TorchCapture
from specla.backends.triton.heads import Heads
from specla.backends.triton.launch import INTERPRETED
from specla.backends.triton.matrices import Matrices
from specla.backends.triton.moves import Moves
from specla.backends.triton.norms import Norms
from specla.backends.triton.plans import PackedPlans, padded_keys, padded_rows
from specla.backends.triton.products import Products
from specla.backends.triton.quantise import Quantiser
from specla.backends.triton.scratch import Scratch
from specla.backends.triton.staging import Staging
from specla.errors import OptionError


class TritonBackend(
    Elementwise,
    Norms,
    Heads,
    Quantiser,
    Products,
    Matrices,
    Convolution,
    DeltaRule,
    Gather,
    Attention,
    Moves,
    Choices,
    TorchArrays,
    Device,
    Backend,
):
    """Triton kernels on torch tensors. device: as for ``device.choose``, which raises OptionError
    where there is none.

    graphs: run steps as captured graphs (graphs.py) rather than kernel by kernel; None is yes on a
    GPU, unless SPECLA_TRITON_GRAPHS is 0.  capture: makes them; None is torch.
    """

    name = "triton"
    interpreted = INTERPRETED
    most_positions = MOST_POSITIONS

    def __init__(
        self,
        device: str | torch.device | None = None,
        graphs: bool | None = None,
        capture: Capture | None = None,
    ) -> None:
        self.device = choose(device)
        self._scratch = Scratch(self.device)
        self._staging = Staging(self.device)
        on_gpu = self.device.type == "cuda" and not INTERPRETED
        if graphs is None:
            graphs = _graphs_wanted() and on_gpu
        if graphs and capture is None:
            if not on_gpu:
                raise OptionError(f"graphs on {self.device}: only a GPU has them; leave them off")
            capture = TorchCapture(self.device)
        self._capture = capture if graphs else None

    def kv_pool(self, shape: KvShape) -> KvPool:
        check_positions(shape.context, self)
        return super().kv_pool(shape)

    def step_runner(self) -> StepRunner:
        return StepRunner() if self._capture is None else GraphSteps(self._capture)

    def plan_buffers(self, context: int) -> PlanUpload:
        return PackedPlans(self, context, padded=self._capture is not None)

    def padded_rows(self, n: int) -> int:
        return n if self._capture is None else padded_rows(n)

    def padded_keys(self, n: int, context: int) -> int:
        return n if self._capture is None else padded_keys(n, context)


def _graphs_wanted() -> bool:
    """What SPECLA_TRITON_GRAPHS says; yes where it says nothing."""
    value = os.environ.get("SPECLA_TRITON_GRAPHS") or "1"
    if value not in ("0", "1"):
        raise OptionError(f"SPECLA_TRITON_GRAPHS is {value!r}; it must be 0 or 1")
    return value == "1"
