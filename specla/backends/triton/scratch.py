"""Memory of one call, kept for the next one: a captured graph must find it where it was."""

from __future__ import annotations

from typing import Any

import torch


class Scratch:
    """Named buffers that only grow."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[str, Any] = {}

    def floats(self, name: str, *shape: int) -> Any:
        """float32 [shape] with undefined content."""
        size = 1
        for extent in shape:
            size *= extent
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < size:
            buffer = self._buffers[name] = torch.empty(
                size, dtype=torch.float32, device=self._device
            )
        return buffer[:size].view(shape)
