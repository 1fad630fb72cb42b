"""Settings of a backend, from options, the environment and defaults, resolved once."""

from __future__ import annotations

import inspect
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specla.errors import OptionError

THREADS_VARIABLE = "SPECLA_THREADS"
DEVICE_VARIABLE = "SPECLA_DEVICE"
MOST_THREADS = 256
SMALL_MODEL = 64 << 20
"""Bytes of weights below which sharing the work costs more than it brings."""


@dataclass(frozen=True)
class BackendOptions:
    """How a backend is to compute; nothing of it shows in any bit.

    threads: how many share the work.  level: CPU instructions to use, None for the best there are.
    device: which GPU ("cuda:0"), None for the backend's own choice.
    """

    threads: int
    level: str | None = None
    device: str | None = None

    @classmethod
    def resolve(
        cls,
        threads: int | None = None,
        level: str | None = None,
        model_bytes: int | None = None,
        device: str | None = None,
    ) -> BackendOptions:
        """What was given, else what SPECLA_THREADS and SPECLA_DEVICE say, else
        :func:`default_threads` and the backend's choice.

        Raises OptionError unless threads is a whole number 1..256.
        """
        device = wanted_device(device)
        if threads is not None:
            return cls(_checked_threads("threads", threads), level, device)
        if text := os.environ.get(THREADS_VARIABLE):
            return cls(_checked_threads(THREADS_VARIABLE, text), level, device)
        return cls(default_threads(model_bytes), level, device)


def wanted_device(device: str | None) -> str | None:
    """What was given, else what SPECLA_DEVICE says, else None."""
    return device or os.environ.get(DEVICE_VARIABLE) or None


def default_threads(model_bytes: int | None) -> int:
    """Threads for weights of this size, where nobody said: one for a small model, or where the size
    isn't known, else one per CPU that this process may use."""
    if model_bytes is None or model_bytes < SMALL_MODEL:
        return 1
    return min(usable_cpus(), MOST_THREADS)


def usable_cpus() -> int:
    """CPUs that this process may use, by its affinity and its container's quota."""
    try:
        count = len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        count = os.cpu_count() or 1
    return max(1, min(count, cpu_quota() or MOST_THREADS))


def cpu_quota() -> int | None:
    """CPUs' worth of time that the container may use, rounded up; None without a limit."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return -(-int(quota) // int(period))
    except (OSError, ValueError):  # no control groups, or no limit ("max")
        return None


_REFUSALS = {
    "threads": "computes on one thread; leave --threads out or choose another backend",
    "level": "has no CPU levels; leave level out or choose another backend",
    "device": "takes no device; leave --device out or choose a GPU backend: --backend triton",
}
"""Options that a backend's constructor may take, and what is said where it doesn't."""


def accepted(kind: type[Any], name: str, given: dict[str, Any]) -> frozenset[str]:
    """Which of ``threads``, ``level`` and ``device`` a backend's constructor takes.

    given: what the user asked for, None for what not. Raises OptionError, naming the backend, for a
    wish that it can't heed.
    """
    known = frozenset(inspect.signature(kind).parameters) & _REFUSALS.keys()
    wishes = {option: value for option, value in given.items() if value is not None}
    for option in wishes.keys() - known:
        # one thread is what it computes on anyway
        if option == "threads" and wishes[option] == 1:
            continue
        raise OptionError(f"backend {name!r} {_REFUSALS[option]} ({option} is {wishes[option]!r})")
    return known


def _checked_threads(source: str, given: Any) -> int:
    try:
        count = int(given)
    except (TypeError, ValueError):
        count = 0
    if not 1 <= count <= MOST_THREADS:
        raise OptionError(f"{source} is {given!r}; it must be a whole number 1..{MOST_THREADS}")
    return count
