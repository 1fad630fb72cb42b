"""The GPU backend as a class."""

from __future__ import annotations

import torch

from specla.backends.base import Backend
from specla.backends.triton.arrays import TorchArrays
from specla.backends.triton.attention import Attention
from specla.backends.triton.choices import Choices
from specla.backends.triton.conv import Convolution
from specla.backends.triton.elementwise import Elementwise
from specla.backends.triton.gather import Gather
from specla.backends.triton.gdn import DeltaRule
from specla.backends.triton.launch import INTERPRETED
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
    Backend,
):
    """Triton kernels on torch tensors. device: as torch names it; None is the first GPU, or the
    host where kernels are interpreted."""

    name = "triton"

    def __init__(self, device: str | None = None) -> None:
        self.device = torch.device(device or ("cpu" if INTERPRETED else "cuda:0"))
        self._scratch = Scratch(self.device)
