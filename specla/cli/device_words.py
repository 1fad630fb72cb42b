"""What a backend computes on, and how much memory, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specla.backends.base import Backend


def described(backend: Backend) -> dict[str, Any]:
    """What a backend says of its device; nothing, where it isn't even of the right class."""
    describe = getattr(backend, "describe", dict)
    return dict(describe())


def device_words(device: Mapping[str, Any]) -> str:
    """``NVIDIA H200 (cuda:0, sm_90, 139.8 GiB, CUDA 12.8, driver 570.86.15)``, as far as known."""
    memory, driver = device.get("memory"), device.get("driver")
    inside = [
        device.get("device"),
        device.get("architecture"),
        gib(memory) if memory else None,
        device.get("runtime"),
        f"driver {driver}" if driver else None,
    ]
    known = ", ".join(str(part) for part in inside if part)
    return f"{device.get('name', 'a device')} ({known})"


def gib(count: int) -> str:
    """Bytes in GiB, for people."""
    return f"{count / 2**30:.1f} GiB"
