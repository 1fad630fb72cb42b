"""Small copies to the device that nobody waits for.

From memory that the system may page out, a copy makes the host wait until everything before it has
run. So the host writes into pinned memory, and the device fetches it when it comes to that. There
are several such pieces of memory, taken in turn: by the time that one is needed again, its copy has
long been made, which an event tells.
"""

from __future__ import annotations

from typing import Any

import torch

PIECES = 8
"""More than the copies of a round: then nobody ever waits."""
MOST_BYTES = 1 << 20
"""What is larger isn't worth a second copy on the host."""


class Staging:
    """Copies from the host to ``device`` in the order of the device's other work."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pieces = [_Piece(device) for _ in range(PIECES)]
        self._next = 0

    def copy(self, host: Any, target: Any) -> None:
        """target = host, a tensor on the host of at most MOST_BYTES, read when this returns."""
        piece = self._pieces[self._next]
        self._next = (self._next + 1) % PIECES
        piece.copy(host, target)


class _Piece:
    """Memory for one copy at a time. On the host itself there is nothing to wait for."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._gpu = device.type == "cuda"
        self._memory = torch.empty(0, dtype=torch.uint8)
        self._done = torch.cuda.Event() if self._gpu else None
        self._known = True

    def copy(self, host: Any, target: Any) -> None:
        self._wait()
        size = host.numel() * host.element_size()
        if self._memory.numel() < size:
            room = max(4096, 1 << (size - 1).bit_length())
            self._memory = torch.empty(room, dtype=torch.uint8, pin_memory=self._gpu)
        staged = self._memory[:size].view(host.dtype).view(host.shape)
        staged.copy_(host)
        self._known = False
        target.copy_(staged, non_blocking=True)
        if self._done is not None:
            self._done.record(torch.cuda.current_stream(self._device))
        self._known = True

    def _wait(self) -> None:
        """Until the last copy has been made."""
        if self._done is None:
            return
        if self._known:
            self._done.synchronize()
        else:
            # interrupted before the event could tell
            torch.cuda.synchronize(self._device)
