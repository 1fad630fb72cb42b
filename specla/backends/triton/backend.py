"""The GPU backend as a class."""

from __future__ import annotations

import torch

from specla.backends.base import Backend
from specla.backends.triton.arrays import TorchArrays
from specla.backends.triton.attention import Attention
from specla.backends.triton.choices import Choices
from specla.backends.triton.conv import Convolution
from specla.backends.triton.device import Device, choose
from specla.backends.triton.elementwise import Elementwise
from specla.backends.triton.gather import Gather
from specla.backends.triton.gdn import DeltaRule
from specla.backends.triton.moves import Moves
from specla.backends.triton.norms import Norms
from specla.backends.triton.products import Products
from specla.backends.triton.scratch import Scratch


class TritonBackend(
    Elementwise,
    Norms,
    Products,
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
    where there is none."""

    name = "triton"

    def __init__(self, device: str | torch.device | None = None) -> None:
        self.device = choose(device)
        self._scratch = Scratch(self.device)
